/* Runs the statements in the file whose name is its argument in SQLite, and prints the rows. It
 * goes on after errors. */
#include <sqlite3.h>
#include <stdio.h>

static char text[100000];

static int show(void *unused, int columns, char **values, char **names)
{
    (void)unused, (void)names;
    for (int i = 0; i < columns; i++)
        printf("%s|", values[i] ? values[i] : "");
    printf("\n");
    return 0;
}

int main(int argc, char **argv)
{
    FILE *file = argc > 1 ? fopen(argv[1], "rb") : NULL;
    sqlite3 *base;
    if (!file || sqlite3_open(":memory:", &base) != SQLITE_OK)
        return 2;
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    for (const char *rest = text; *rest;) {
        sqlite3_stmt *statement = NULL;
        if (sqlite3_prepare_v2(base, rest, -1, &statement, &rest) != SQLITE_OK) {
            printf("%s\n", sqlite3_errmsg(base));
            continue;
        }
        int columns = sqlite3_column_count(statement);
        while (statement && sqlite3_step(statement) == SQLITE_ROW) {
            char *values[20];
            for (int i = 0; i < columns && i < 20; i++)
                values[i] = (char *)sqlite3_column_text(statement, i);
            show(NULL, columns < 20 ? columns : 20, values, NULL);
        }
        sqlite3_finalize(statement);
    }
    return sqlite3_close(base) != SQLITE_OK;
}
