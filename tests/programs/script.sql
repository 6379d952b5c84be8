-- A fixed run of the sqlite3 shell in memory: recursion, sorting, joins, triggers in triggers, errors.
CREATE TABLE part(id INTEGER PRIMARY KEY, parent INTEGER REFERENCES part(id), name TEXT, cost INTEGER);
CREATE INDEX by_cost ON part(cost, name);
CREATE TABLE log(id INTEGER PRIMARY KEY, what TEXT NOT NULL, level INTEGER CHECK(level < 40));
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 160)
  INSERT INTO part SELECT i, nullif(i / 2, 0), 'part ' || i, (i * 37) % 61 FROM n;
WITH RECURSIVE up(id, depth) AS (
    SELECT id, 0 FROM part WHERE id > 150
    UNION ALL SELECT part.parent, depth + 1 FROM part JOIN up ON part.id = up.id WHERE part.parent NOT NULL)
  SELECT id, count(*), max(depth) FROM up GROUP BY id ORDER BY 2 DESC, 1 LIMIT 5;
SELECT a.name, b.name, a.cost + b.cost FROM part a JOIN part b ON a.cost = b.cost AND a.id < b.id
  WHERE a.name LIKE '%1%' ORDER BY b.name DESC LIMIT 6;
SELECT cost % 7, sum(cost), group_concat(substr(name, 6), ','), printf('%5.2f', avg(cost))
  FROM part GROUP BY 1 ORDER BY 2;
SELECT id, sum(cost) OVER (ORDER BY id ROWS BETWEEN 3 PRECEDING AND CURRENT ROW) FROM part LIMIT 4 OFFSET 90;
-- A trigger that fires itself.
PRAGMA recursive_triggers = ON;
CREATE TRIGGER again AFTER INSERT ON log WHEN new.level > 0
  BEGIN INSERT INTO log(what, level) VALUES (new.what || '.', new.level - 1); END;
INSERT INTO log(what, level) VALUES ('x', 30);
SELECT count(*), max(length(what)) FROM log;
-- Errors: when a statement is compiled, by a constraint, by a function.
SELECT absent FROM part;
INSERT INTO log(what, level) VALUES ('y', 40);
INSERT INTO part VALUES (7, 1, 'twice', 0);
SELECT abs(-9223372036854775808);
SELECT (SELECT (SELECT (SELECT (SELECT max(id) FROM part WHERE cost < p.cost) + 1) + 1) + 1) FROM part p LIMIT 5;
DELETE FROM part WHERE id IN (SELECT id FROM part WHERE cost > 50);
UPDATE part SET cost = cost + 1 WHERE id % 3 = 0;
SELECT count(*), sum(cost), hex(zeroblob(4)), json_extract('{"a": [1, 2, {"b": 3}]}', '$.a[2].b') FROM part;
