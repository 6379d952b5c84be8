/* Packs and unpacks the file whose name is its argument with zlib, at several levels and with each
 * strategy, in pieces. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

static unsigned char text[60000], packed[80000], back[60000];

static size_t pack(int level, int strategy, int bits, size_t size)
{
    z_stream stream;
    memset(&stream, 0, sizeof stream);
    if (deflateInit2(&stream, level, Z_DEFLATED, bits, 7, strategy) != Z_OK)
        return 0;
    stream.next_out = packed;
    stream.avail_out = sizeof packed;
    for (size_t at = 0; at < size; at += 5000) {
        stream.next_in = text + at;
        stream.avail_in = (uInt)(size - at < 5000 ? size - at : 5000);
        deflate(&stream, at % 15000 ? Z_NO_FLUSH : Z_SYNC_FLUSH);
    }
    while (deflate(&stream, Z_FINISH) == Z_OK)
        ;
    deflateEnd(&stream);
    return stream.total_out;
}

static size_t unpack(int bits, size_t size)
{
    z_stream stream;
    memset(&stream, 0, sizeof stream);
    if (inflateInit2(&stream, bits) != Z_OK)
        return 0;
    stream.next_out = back;
    int result = Z_OK;
    for (size_t at = 0; at < size && result == Z_OK; at += 777) {
        stream.next_in = packed + at;
        stream.avail_in = (uInt)(size - at < 777 ? size - at : 777);
        do {
            stream.avail_out = 900;
            result = inflate(&stream, Z_NO_FLUSH);
        } while (result == Z_OK && !stream.avail_out);
    }
    inflateEnd(&stream);
    return result == Z_STREAM_END ? stream.total_out : 0;
}

int main(int argc, char **argv)
{
    FILE *file = argc > 1 ? fopen(argv[1], "rb") : NULL;
    if (!file)
        return 2;
    size_t size = fread(text, 1, sizeof text, file);
    fclose(file);
    for (int level = 0; level < 10; level++)
        for (int strategy = Z_DEFAULT_STRATEGY; strategy <= Z_FIXED; strategy++) {
            int bits = level % 3 == 0 ? -15 : level % 3 == 1 ? 12 : 31;
            size_t length = pack(level, strategy, bits, size);
            if (unpack(bits, length) != size || memcmp(text, back, size))
                return 3;
            printf("%d %d %zu %lu\n", level, strategy, length, crc32(0, packed, (uInt)length));
        }
    packed[9] ^= 1;
    printf("%zu\n", unpack(31, 100));
    return 0;
}
