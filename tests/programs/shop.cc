// A service with long names: a worker thread looks things up in a cache of templates, mostly
// through one slow caller. Runs until its time in seconds is over.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

namespace shop {
struct Item {
    std::string name;
    long price;
};

namespace cache {
template <class Key, class Value, class Hash = std::hash<Key>> class LruCache {
    std::unordered_map<Key, std::shared_ptr<Value>, Hash> entries;

  public:
    __attribute__((noinline)) std::shared_ptr<Value> get(Key const &key) {
        auto found = entries.find(key);
        asm volatile("" ::: "memory");
        return found == entries.end() ? nullptr : found->second;
    }
    __attribute__((noinline)) void put(Key const &key, Value value) {
        entries[key] = std::make_shared<Value>(std::move(value));
        asm volatile("" ::: "memory");
    }
};
} // namespace cache

using Cache = cache::LruCache<std::string, Item>;
using Numbers = cache::LruCache<long, Item>;

__attribute__((noinline)) long price_of_basket(Cache &cache, std::vector<std::string> const &names) {
    long sum = 0;
    for (auto const &name : names)
        if (auto item = cache.get(name))
            sum += item->price;
    return sum;
}

__attribute__((noinline)) long recommend_for_everybody(Cache &cache, std::vector<std::string> const &names) {
    long sum = 0;
    for (int times = 0; times < 50; times++)
        for (auto const &name : names)
            if (auto item = cache.get(name))
                sum += item->price;
    return sum;
}
} // namespace shop

int main(int, char **arguments) {
    using clock = std::chrono::steady_clock;
    auto end = clock::now() + std::chrono::milliseconds(static_cast<long>(1000 * atof(arguments[1])));
    shop::Cache cache;
    shop::Numbers numbers;
    std::vector<std::string> names;
    for (int n = 0; n < 64; n++) {
        names.push_back("item number " + std::to_string(n));
        cache.put(names.back(), shop::Item{names.back(), n});
        numbers.put(n, shop::Item{names.back(), n});
    }
    long sum = 0;
    std::function<void()> work = [&] {
        while (clock::now() < end) {
            sum += shop::price_of_basket(cache, names) + shop::recommend_for_everybody(cache, names);
            for (long n = 0; n < 64; n++)
                sum += numbers.get(n)->price;
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    };
    puts("ready");
    fflush(stdout);
    std::thread worker(work);
    worker.join();
    printf("ok sum %d\n", sum != 0);
}
