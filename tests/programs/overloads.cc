// Overloads and instances of templates, called in an endless loop.
#include <cstdio>
#include <map>
#include <string>
#include <unistd.h>
#include <vector>

static volatile long sum;

namespace company::detail
{
__attribute__((noinline)) long catcher(int x)
{
    sum = sum + x;
    return sum;
}

__attribute__((noinline)) long catcher(const std::string &x)
{
    sum = sum + long(x.size());
    return sum;
}

template <class T, class Map> __attribute__((noinline)) long recursive(T x, const Map &map)
{
    sum = sum + long(map.size());
    return x > 0 ? recursive<T, Map>(x - 1, map) + sum : sum;
}

template <class T> struct Circle
{
    std::vector<T> points;
    __attribute__((noinline)) long area(const T &)
    {
        sum = sum + long(points.size());
        return sum;
    }
};
}

int main()
{
    using namespace company::detail;
    Circle<std::map<std::string, std::vector<std::string>>> circle;
    std::map<std::string, std::vector<std::string>> map;
    std::string text = "text";
    puts("ready");
    fflush(stdout);
    for (;;) {
        sum = sum + catcher(1) + catcher(text) + recursive(2, map) + circle.area(map);
        usleep(100);
    }
}
