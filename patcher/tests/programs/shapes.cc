// Shapes of functions that plans are made for.
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

extern "C" {

int tiny() { return 1; }
void nothing() {}
int tail(int x);
int tail_caller(int x) { return x > 3 ? tail(x - 3) : 7; }
int (*pointer)(int) = tail;
int tail_through(int x) { return pointer(x); }

int switched(int x) {
  switch (x) {
    case 0: return tail(1);
    case 1: return x * 7;
    case 2: return abs(x - 9);
    case 3: return x ^ 0x55;
    case 4: return tail(x) + 1;
    case 5: return x << 3;
    case 6: return -x;
    case 7: return rand();
    default: return x;
  }
}

int threaded(const unsigned char *code) {
  static const void *const labels[] = {&&add, &&twice, &&stop};
  int value = 0;
  goto *labels[*code++];
add:
  value += *code++;
  goto *labels[*code++];
twice:
  value *= 2;
  goto *labels[*code++];
stop:
  return value;
}

unsigned long loop(unsigned long n) {
  unsigned long sum = 0;
  do {
    sum = sum * 31 + n;
  } while (--n);
  return sum;
}

int tail(int x) { return x < 0 ? rand() : x + 1; }
}

struct Guard {
  std::vector<int> values;
  ~Guard() { values.clear(); }
};

int thrower(int x) {
  Guard guard;
  guard.values.push_back(x);
  if (x > 3) throw std::runtime_error("too large: " + std::to_string(x));
  return static_cast<int>(guard.values.size());
}

int catcher(int x) {
  try {
    return thrower(x);
  } catch (const std::exception &e) {
    return static_cast<int>(std::string(e.what()).size());
  } catch (...) {
    return -1;
  }
}
