// A program whose output depends on most of its registers and flags. With an argument, breakpoints
// surround the work.
#include <csetjmp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#ifdef WITH_ZLIB
#include <zlib.h>
#endif

#define OWN __attribute__((noinline, noclone)) static

OWN uint64_t mixed(const uint64_t *values, int count) {
  uint64_t a = 1, b = 2, c = 3, d = 5;
  for (int i = 0; i < count; i++) {
    uint64_t value = values[i];
    a += value << (i & 63);
    b ^= value >> (a & 63);
    c = c * 31 + (a < b ? value : b);
    d = (d << 7 | d >> 57) + (c > a);
  }
  return a ^ b ^ c ^ d;
}

OWN int switched(int kind, int x, int y) {
  switch (kind) {
    case 0: return x + y;
    case 1: return x - 3 * y;
    case 2: return y ? x / y : -1;
    case 3: return y ? x % y : -2;
    case 4: return x << (y & 31);
    case 5: return static_cast<int>(static_cast<unsigned>(x) >> (y & 31));
    case 6: return x > y ? x : y;
    case 7: return x & ~y;
    default: return x ^ y;
  }
}

OWN double floating(const double *values, int count) {
  double sum = 0, product = 1;
  for (int i = 0; i < count; i++) {
    if (values[i] < 0) {
      sum -= values[i] / (i + 1);
    } else {
      product *= 1 + values[i] * 1e-3;
    }
    if (sum > product) sum -= static_cast<int>(product);
  }
  return sum + product;
}

OWN int words(const char *text, char *out) {
  int count = 0;
  bool inside = false;
  for (; *text; text++) {
    bool letter = (*text >= 'a' && *text <= 'z') || (*text >= 'A' && *text <= 'Z');
    if (letter && !inside) count++;
    *out++ = letter && !inside ? *text & ~0x20 : *text;
    inside = letter;
  }
  *out = 0;
  return count;
}

// 128-bit arithmetic carries through flags.
OWN unsigned __int128 wide(uint64_t x, uint64_t y, int rounds) {
  unsigned __int128 a = x, b = static_cast<unsigned __int128>(y) << 64 | x;
  while (rounds--) {
    a = a * 0x9e3779b97f4a7c15u + b;
    b -= a >> 3;
    if (a < b) a += 0x1234567;
  }
  return a ^ b;
}

// The compiler knows which registers this one leaves as they are.
OWN int small(int x) { return x * 3 + 1; }
OWN int around(int n, int a, int b, int c) {
  int sum = 0;
  while (n-- > 0) {
    sum += small(n) + a;
    a = a * 5 + c;
    b ^= sum + small(b & 15);
    c += b - n;
  }
  return sum ^ a ^ b ^ c;
}

OWN int ackermann(int m, int n) {
  if (m == 0) return n + 1;
  return n == 0 ? ackermann(m - 1, 1) : ackermann(m - 1, ackermann(m, n - 1));
}

static jmp_buf back;
OWN void leaves(int x) {
  if (x > 2) longjmp(back, x);
  if (x < 9) leaves(x + 1);
}
OWN int returns_twice(int x) {
  volatile int kept = x * 7;
  int code = setjmp(back);
  if (code == 0) leaves(0);
  return kept + code;
}

OWN int throws(int x) {
  std::string name = "n" + std::to_string(x);
  if (x & 1) throw std::runtime_error(name);
  return static_cast<int>(name.size());
}
OWN int catches(int n) {
  int sum = 0;
  for (int i = 0; i < n; i++) {
    try {
      sum = sum * 3 + throws(i);
    } catch (const std::exception &error) {
      sum += 100 + error.what()[1];
    }
  }
  return sum;
}

static int descending(const void *a, const void *b) {
  uint64_t x = *static_cast<const uint64_t *>(a), y = *static_cast<const uint64_t *>(b);
  return x < y ? 1 : x > y ? -1 : 0;
}

int main(int argc, char **) {
  if (argc > 1) asm volatile("int3");
  uint64_t values[48];
  double doubles[48];
  uint64_t seed = 88172645463325252u;
  for (int i = 0; i < 48; i++) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    values[i] = seed;
    doubles[i] = static_cast<double>(static_cast<int64_t>(seed) >> 50);
  }
  printf("%lx\n", mixed(values, 48));
  for (int i = 0; i < 24; i++) printf("%d ", switched(i % 9, values[i], values[i + 1] & 0xff));
  printf("\n%.17g %a\n", floating(doubles, 48), floating(doubles + 9, 30));
  const char *text = "Pack my box with five dozen liquor jugs, the quick brown fox said.";
  char out[128];
  int count = words(text, out);
  printf("%d %s %zu\n", count, out, strspn(strchr(out, 'W'), "WITH five"));
  unsigned __int128 big = wide(values[3], values[4], 20);
  printf("%lx %lx\n", static_cast<uint64_t>(big >> 64), static_cast<uint64_t>(big));
  printf("%d %d %d\n", around(30, 3, 4, 5), ackermann(2, 4), returns_twice(6));
  printf("%d\n", catches(2));
  qsort(values, 48, sizeof values[0], descending);
  printf("%lx %lx\n", values[0], mixed(values, 47));
  printf("%.12g %ld %s\n", strtod("-123.4567e-3", nullptr), strtol("7fffZ", nullptr, 16),
         strstr(text, "liquor"));
#ifdef WITH_ZLIB
  // The smallest tables.
  unsigned char in[300], packed[1200], unpacked[300];
  for (int i = 0; i < 300; i++) in[i] = text[i % 41] ^ (i % 67 == 0 ? i : 0);
  z_stream deflating = {}, inflating = {};
  int status = deflateInit2(&deflating, 6, Z_DEFLATED, 9, 1, Z_DEFAULT_STRATEGY);
  deflating.next_in = in;
  deflating.avail_in = sizeof in;
  deflating.next_out = packed;
  deflating.avail_out = sizeof packed;
  status = status * 10 + deflate(&deflating, Z_FINISH);
  deflateEnd(&deflating);
  status = status * 10 + inflateInit2(&inflating, 9);
  inflating.next_in = packed;
  inflating.avail_in = deflating.total_out;
  inflating.next_out = unpacked;
  inflating.avail_out = sizeof unpacked;
  status = status * 10 + inflate(&inflating, Z_FINISH);
  inflateEnd(&inflating);
  printf("%d %lu %lu %d %lx %lx\n", status, deflating.total_out, inflating.total_out,
         memcmp(in, unpacked, sizeof in), crc32(0, packed, deflating.total_out),
         adler32(1, in, sizeof in));
#endif
  fflush(stdout);
  if (argc > 1) asm volatile("int3");
  return 0;
}
