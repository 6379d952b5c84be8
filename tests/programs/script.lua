-- A fixed run of the interpreter: a thousand calls deep, through C and back, errors that are thrown
-- through many frames, coroutines. It prints a checksum, and how often it has called functions of the
-- interpreter (`calls NAME N`), left them by a jump (`unwound NAME N`) and caught an error
-- (`caught BY N`).

local calls, unwound, caught = {}, {}, {}

local function note(counts, name, n)
  counts[name] = (counts[name] or 0) + (n or 1)
end

-- What is below needs these functions of the interpreter, each with what it calls of it.
local gsub, sort, wrap, yield = string.gsub, table.sort, coroutine.wrap, coroutine.yield

-- luaL_checknumber, once.
local function root(x)
  note(calls, "luaL_checknumber")
  return math.sqrt(x)
end

-- lua_pcallk, once. Of a call that fails it is known how it does.
local function try(f, ...)
  note(calls, "lua_pcallk")
  return pcall(f, ...)
end

-- lua_error, once, never to return.
local function throw(what)
  note(calls, "lua_error")
  note(unwound, "lua_error")
  error(what, 0)
end

-- Arguments are refused by luaL_error, which calls lua_error.
local function refuse()
  note(calls, "luaL_checknumber")
  for _, name in ipairs { "luaL_error", "lua_error" } do
    note(calls, name)
  end
  for _, name in ipairs { "luaL_checknumber", "luaL_error", "lua_error" } do
    note(unwound, name)
  end
  math.sqrt({})
end

-- lua_callk, once for the letter.
local function through_c(f)
  note(calls, "lua_callk")
  return (gsub("a", "a", function() return f() end))
end

local function fails(f, ...)
  local ok, what = try(f, ...)
  assert(not ok)
  note(caught, "pcall")
  return what
end

-- A thousand calls of the script deep; each eighth goes through C.
local function down(n)
  if n == 0 then
    return root(1764)
  end
  if n % 8 ~= 0 then
    local below = down(n - 1)
    return n % 100 == 1 and root(below * below) or below
  end
  local below
  through_c(function() below = down(n - 1) end)
  return below
end

-- An error through `n` levels of C.
local function dig(n, bottom)
  if n == 0 then
    bottom()
  end
  note(unwound, "lua_callk")
  through_c(function() dig(n - 1, bottom) end)
end

-- Each level catches what the one below throws, and throws it again.
local function again(n)
  if n == 0 then
    throw("bottom")
  end
  local what = fails(again, n - 1)
  throw(what .. n)
end

local sorted = {}
local function compare(a, b)
  note(calls, "lua_callk")
  return root(a) < root(b)
end

local function numbers(n)
  for i = 1, n do
    note(calls, "lua_yieldk")
    note(unwound, "lua_yieldk")
    yield(root(i * i))
  end
end

local function resume(co, ...)
  note(calls, "lua_resume")
  return coroutine.resume(co, ...)
end

local results = { down(1000) }

for n = 1, 10 do
  results[#results + 1] = fails(dig, 15 * n, function() throw("deep") end)
  results[#results + 1] = #fails(dig, 10 * n, refuse)
end
results[#results + 1] = fails(again, 20)

for i = 1, 60 do
  sorted[i] = (37 * i) % 61
end
sort(sorted, compare)
results[#results + 1] = table.concat(sorted, ",", 1, 5)

-- One coroutine resumes the next.
local function nest(n)
  if n == 0 then
    return root(81)
  end
  note(calls, "lua_resume")
  return wrap(function()
    local below = nest(n - 1)
    numbers(3)
    return below
  end)()
end
results[#results + 1] = nest(30)

local co = coroutine.create(function() numbers(50) return "end" end)
local sum = 0
while coroutine.status(co) ~= "dead" do
  local _, value = resume(co)
  sum = sum + (tonumber(value) or 0)
end
results[#results + 1] = sum

-- A protected call within a coroutine is left by the jump of a yield, and by that of an error.
local inner = coroutine.create(function()
  for _ = 1, 5 do
    note(unwound, "lua_pcallk")
    try(numbers, 1)
  end
  for _ = 1, 7 do
    note(unwound, "lua_pcallk")
    fails(throw, "within")
  end
  throw("last")
end)
while coroutine.status(inner) ~= "dead" do
  local ok, value = resume(inner)
  if not ok then
    note(caught, "resume")
  end
  results[#results + 1] = tostring(ok) .. tostring(value)
end

-- A function of its own for the protected call; the error comes from a metamethod.
local odd = setmetatable({}, { __index = function(_, key) throw("no " .. key) end })
note(calls, "lua_pcallk")
local _, what = xpcall(function() return odd.field end, function(e) return e .. "!" end)
note(caught, "xpcall")
results[#results + 1] = what

for i = 1, #results do
  print(results[i])
end
local lines = {}
for word, counts in pairs { calls = calls, unwound = unwound, caught = caught } do
  for name, n in pairs(counts) do
    lines[#lines + 1] = word .. " " .. name .. " " .. n
  end
end
sort(lines)
print(table.concat(lines, "\n"))
