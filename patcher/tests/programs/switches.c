/* A loop without calls around a jump table. */
long interprets(const unsigned char *codes, long n, long x)
{
    for (long i = 0; i < n; i++)
        switch (codes[i] & 15) {
        case 0: x++; break;
        case 1: x -= 3; break;
        case 2: x *= 5; break;
        case 3: x ^= i; break;
        case 4: x >>= 1; break;
        case 5: x = ~x; break;
        case 6: x += codes[i]; break;
        case 7: return x;
        case 8: i++; break;
        default: x |= 1;
        }
    return x;
}
