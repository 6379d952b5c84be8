/* Packs and unpacks the file whose name is its argument with zlib at three levels. Prints the sizes
 * and checksums. */
#include <stdio.h>
#include <string.h>
#include <zlib.h>

enum { MOST = 16 << 20 };

static unsigned char text[MOST], packed[MOST + MOST / 100], back[MOST];

int main(int argc, char **argv)
{
    FILE *file = argc > 1 ? fopen(argv[1], "rb") : NULL;
    if (!file)
        return 2;
    uLong size = fread(text, 1, sizeof text, file);
    for (int level = 1; level <= 9; level += 4) {
        uLongf len = sizeof packed, unpacked = sizeof back;
        if (compress2(packed, &len, text, size, level) != Z_OK ||
            uncompress(back, &unpacked, packed, len) != Z_OK)
            return 1;
        if (unpacked != size || memcmp(text, back, size))
            return 1;
        printf("%d %lu %08lx\n", level, len, crc32(0, packed, len));
    }
    return 0;
}
