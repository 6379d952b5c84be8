// Calls the parts of exceptions, containers, memory resources, threads, regular expressions and the
// file system that libstdc++ contains as compiled code. Its argument is a folder of its own,
// initially empty. Its output depends on nothing else, and neither does the number of calls of each
// function.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#undef __DEPRECATED // <strstream> would warn
#include <algorithm>
#include <any>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <iostream>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <new>
#include <optional>
#include <random>
#include <regex>
#include <shared_mutex>
#include <stdexcept>
#include <string>
#include <strstream>
#include <system_error>
#include <thread>
#include <typeindex>
#include <unordered_map>
#include <valarray>
#include <variant>
#include <vector>
#include <cxxabi.h>

namespace
{

// A text in either character type.
template <class C>
std::basic_string<C> text(const char *ascii)
{
    return std::basic_string<C>(ascii, ascii + std::char_traits<char>::length(ascii));
}

std::string narrow(const std::string &s) { return s; }
std::string narrow(const std::wstring &s) { return std::string(s.begin(), s.end()); }

template <class F>
void throws(const char *what, F call)
{
    try {
        call();
        std::cout << what << " passes\n";
    } catch (const std::exception &error) {
        std::cout << what << ": " << error.what() << '\n';
    }
}

struct Base {
    virtual ~Base() = default;
    virtual int id() const { return 1; }
};
struct Left : virtual Base {
    int id() const override { return 2; }
};
struct Right : virtual Base {};
struct Both : Left, Right {
    int id() const override { return 4; }
};

[[noreturn]] void thrower(int n)
{
    std::string held(40, static_cast<char>('a' + n)); // destroyed by unwinding
    switch (n) {
    case 0: throw std::runtime_error(held);
    case 1: throw std::logic_error(held.c_str());
    case 2: throw std::out_of_range("range");
    case 3: throw std::invalid_argument("argument");
    case 4: throw std::length_error("length");
    case 5: throw std::domain_error("domain");
    case 6: throw std::overflow_error("overflow");
    case 7: throw std::underflow_error("underflow");
    case 8: throw std::range_error("range");
    case 9: throw std::system_error(5, std::generic_category(), "system");
    case 10: throw std::ios_base::failure("failure");
    case 11: throw std::bad_alloc();
    case 12: throw std::bad_cast();
    case 13: throw std::bad_function_call();
    case 14: throw std::regex_error(std::regex_constants::error_paren);
    case 15:
        throw std::filesystem::filesystem_error("fs", "a", "b",
                                                std::error_code(2, std::system_category()));
    case 16: throw std::future_error(std::future_errc::no_state);
    case 17: throw std::bad_weak_ptr();
    case 18: throw std::bad_optional_access();
    default: throw std::bad_variant_access();
    }
}

int depth(int n)
{
    struct Guard {
        int &count;
        ~Guard() { count++; }
    };
    static int guards;
    Guard guard{guards};
    if (n == 0)
        thrower(guards % 20);
    if (n < 0)
        return guards;
    return depth(n - 1) + guards;
}

void exceptions()
{
    for (int n = 0; n < 20; n++)
        throws("thrown", [n] { thrower(n); });
    for (int n = 0; n < 30; n++)
        throws("deep", [n] { depth(n); });
    try {
        try {
            thrower(0);
        } catch (...) {
            std::throw_with_nested(std::runtime_error("outer"));
        }
    } catch (const std::exception &error) {
        try {
            std::rethrow_if_nested(error);
        } catch (const std::exception &inner) {
            std::cout << error.what() << inner.what() << std::uncaught_exceptions() << '\n';
        }
    }
    std::exception_ptr kept;
    try {
        thrower(2);
    } catch (...) {
        kept = std::current_exception();
    }
    std::exception_ptr copy = kept;
    throws("rethrown", [&] { std::rethrow_exception(copy); });
    throws("again", [] {
        try {
            thrower(3);
        } catch (const std::logic_error &) {
            throw;
        }
    });
    throws("make",
           [] { std::rethrow_exception(std::make_exception_ptr(std::runtime_error("made"))); });
    Both both;
    Base *base = &both;
    std::cout << dynamic_cast<Both *>(base)->id() << (dynamic_cast<Right *>(base) != nullptr)
              << base->id() << (dynamic_cast<Left *>(static_cast<Right *>(&both)) != nullptr)
              << (typeid(*base) == typeid(Both)) << typeid(*base).before(typeid(int))
              << std::type_index(typeid(*base)).name() << '\n';
    throws("bad_cast", [] {
        Base plain;
        Base &reference = plain;
        std::cout << dynamic_cast<Both &>(reference).id();
    });
    throws("bad_typeid", [] {
        Base *none = nullptr;
        std::cout << typeid(*none).name();
    });
    throws("bad_any", [] { (void)std::any_cast<int>(std::any(2.5)); });
    throws("bad new", [] {
        std::size_t huge = std::numeric_limits<std::ptrdiff_t>::max();
        std::cout << (new (std::nothrow) char[huge] == nullptr);
        static void *volatile place = operator new(huge);
        std::cout << place;
    });
    int status = 0;
    for (const char *name :
         {"_ZNSt6vectorIiSaIiEE9push_backEOi", "_ZN3fooIXadL_Z3barvEEE3bazEv", "none", "i"}) {
        char *demangled = abi::__cxa_demangle(name, nullptr, nullptr, &status);
        std::cout << (demangled ? demangled : "-") << status << ' ';
        std::free(demangled);
    }
    std::cout << '\n';
}

void containers()
{
    std::map<int, std::string> tree;
    std::multimap<std::string, int> many;
    std::unordered_map<std::string, int> hashed;
    std::unordered_map<double, int> by_double;
    std::list<int> list;
    for (int i = 0; i < 300; i++) {
        tree[i * 37 % 301] = std::to_string(i);
        many.emplace(std::to_string(i % 17), i);
        hashed[std::to_string(i)] = i;
        by_double[i * 0.5] = i;
        list.push_front(i * 7 % 101);
    }
    for (int i = 0; i < 300; i += 3) {
        tree.erase(i);
        hashed.erase(std::to_string(i));
    }
    list.sort();
    list.reverse();
    std::list<int> other = {1, 2, 3};
    list.splice(list.begin(), other);
    list.unique();
    hashed.rehash(10);
    long sum = 0;
    for (auto &pair : tree)
        sum += pair.first * static_cast<long>(pair.second.size());
    for (auto at = tree.rbegin(); at != tree.rend(); ++at)
        sum ^= at->first;
    std::cout << sum << ' ' << many.count("3") << ' ' << hashed.size() << hashed.bucket_count()
              << ' ' << list.size() << ' ' << by_double[3.5] << '\n';
    std::vector<int> numbers(1000);
    std::mt19937 random(42);
    for (int &n : numbers)
        n = static_cast<int>(random() % 10007);
    std::stable_sort(numbers.begin(), numbers.end());
    std::pmr::monotonic_buffer_resource buffer;
    std::pmr::unsynchronized_pool_resource pool(&buffer);
    std::pmr::synchronized_pool_resource synced;
    {
        std::pmr::vector<std::pmr::vector<char>> strings(&pool);
        std::pmr::list<int> ints(&synced);
        for (int i = 0; i < 200; i++) {
            strings.emplace_back(static_cast<std::size_t>(i), 'p');
            ints.push_back(i);
        }
        std::cout << numbers[500] << ' ' << strings[100].size() << ints.size() << '\n';
    }
    pool.release();
    throws("null memory", [] { (void)std::pmr::null_memory_resource()->allocate(4); });
    std::random_device device;
    std::cout << (device.entropy() >= 0) << (device() | 1u ? 1 : 0) << '\n';
    std::shared_ptr<Base> shared = std::make_shared<Both>();
    std::weak_ptr<Base> weak = shared;
    auto atomic = std::atomic_load(&shared);
    std::cout << shared.use_count() << weak.lock()->id()
              << std::dynamic_pointer_cast<Left>(atomic)->id() << '\n';
    std::valarray<double> values = {1, 4, 9};
    std::cout << std::valarray<double>(std::sqrt(values))[2] << '\n';
    throws("vector", [&] { (void)numbers.at(100000); });
    throws("vector", [&] { numbers.reserve(numbers.max_size() + 1); });
    throws("function", [] { std::function<void()>()(); });
}

template <class C>
void expressions()
{
    using Regex = std::basic_regex<C>;
    const std::basic_string<C> subject = text<C>("one 2two three33, FOUR-4 a@b.org");
    for (const char *pattern :
         {"[a-z]+", "(\\w+)@(\\w+)\\.org", "\\d{1,2}", "(t)(h|w)", "[[:upper:]]+-", "(a|b)*c|^o"}) {
        Regex compiled(text<C>(pattern), std::regex::ECMAScript | std::regex::icase);
        std::match_results<typename std::basic_string<C>::const_iterator> match;
        std::cout << std::regex_search(subject, match, compiled) << match.size() << match.position()
                  << ' ' << narrow(std::regex_replace(subject, compiled, text<C>("<$&>"))) << '\n';
    }
    throws("regex", [] { Regex broken(text<C>("(")); });
}

void threads()
{
    std::mutex mutex;
    std::condition_variable condition;
    std::shared_mutex shared;
    std::once_flag once;
    int step = 0;
    for (int i = 0; i < 5; i++) {
        std::thread thread([&] {
            std::call_once(once, [&] { step += 100; });
            std::lock_guard<std::mutex> lock(mutex);
            std::unique_lock<std::shared_mutex> exclusive(shared);
            step++;
            condition.notify_all();
        });
        thread.join();
    }
    std::shared_lock<std::shared_mutex> reading(shared);
    std::promise<int> promise;
    auto future = promise.get_future();
    promise.set_value(5);
    auto deferred = std::async(std::launch::deferred, [] { return 6; });
    auto failed =
        std::async(std::launch::deferred, []() -> int { throw std::runtime_error("in a future"); });
    std::packaged_task<int(int)> task([](int x) { return x * 2; });
    auto packaged = task.get_future();
    task(21);
    std::cout << step << future.get() << deferred.get() << packaged.get() << '\n';
    throws("future", [&] { failed.get(); });
    throws("future", [&] { future.get(); });
    throws("promise", [] {
        std::future<int> broken;
        {
            std::promise<int> dropped;
            broken = dropped.get_future();
        }
        broken.get();
    });
    std::unique_lock<std::mutex> lock(mutex);
    throws("lock", [&] { lock.lock(); });
    std::cout << (condition.wait_for(lock, std::chrono::nanoseconds(1)) == std::cv_status::timeout)
              << '\n';
    throws("thread", [] { std::thread().join(); });
    std::cout << (std::thread::hardware_concurrency() > 0)
              << (std::chrono::steady_clock::now().time_since_epoch().count() > 0)
              << (std::chrono::system_clock::now().time_since_epoch().count() > 0) << '\n';
}

void folders(const std::string &folder)
{
    namespace fs = std::filesystem;
    const fs::path root = fs::path(folder) / "tree";
    std::cout << fs::create_directories(root / "a" / "b") << fs::create_directory(root / "c")
              << '\n';
    for (const char *name : {"a/one.txt", "a/b/two", "c/three.c"})
        std::ofstream(root / name) << name;
    fs::create_symlink("one.txt", root / "a" / "link");
    fs::create_hard_link(root / "c" / "three.c", root / "c" / "hard");
    fs::copy(root / "a", root / "d", fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    fs::copy_file(root / "a" / "b" / "two", root / "c" / "two",
                  fs::copy_options::overwrite_existing);
    fs::rename(root / "c" / "two", root / "c" / "renamed");
    fs::resize_file(root / "c" / "renamed", 100);
    fs::permissions(root / "c" / "renamed", fs::perms::owner_read);
    std::vector<std::string> found;
    for (const auto &entry : fs::recursive_directory_iterator(root))
        found.push_back(fs::relative(entry.path(), root).string() +
                        (entry.is_directory() ? "/" : "") + (entry.is_symlink() ? "@" : "") +
                        std::to_string(entry.is_regular_file() ? entry.file_size() : 0));
    std::sort(found.begin(), found.end());
    for (const auto &name : found)
        std::cout << name << ' ';
    const fs::path path = "/usr/./lib/../share/file.tar.gz";
    std::cout << path.lexically_normal() << path.filename() << path.extension() << path.stem()
              << path.parent_path() << path.lexically_relative("/usr/x") << path.root_path()
              << path.is_absolute() << path.compare("/usr") / 1000 << fs::hash_value(path) % 1000
              << fs::path("a/b").replace_extension("c") << fs::path(L"wide") << '\n';
    for (const auto &part : path)
        std::cout << part.string() << ',';
    std::cout << fs::exists(root / "none") << fs::is_empty(root / "c")
              << fs::equivalent(root / "c/hard", root / "c/three.c")
              << fs::hard_link_count(root / "c/hard") << fs::read_symlink(root / "a/link")
              << fs::file_size(root / "c/hard")
              << (fs::last_write_time(root) > fs::file_time_type())
              << (fs::space(root).capacity > 0) << (fs::canonical(root / "a" / "link").filename())
              << fs::weakly_canonical(root / "x").filename()
              << (fs::current_path() == fs::absolute(".").parent_path())
              << (fs::status(root).type() == fs::file_type::directory);
    std::cout << fs::remove(root / "c" / "hard") << fs::remove_all(root)
              << fs::temp_directory_path().empty() << '\n';
    throws("filesystem", [&] { (void)fs::file_size(root); });
    throws("filesystem", [&] { (void)fs::directory_iterator(root); });
}

void old_streams()
{
    char room[50] = {};
    std::ostrstream out(room, sizeof room);
    out << "old " << 5 << std::ends;
    std::istrstream in("6 7");
    int a = 0, b = 0;
    in >> a >> b;
    std::strstream both;
    both << 12 << ' ' << "x";
    both.freeze(false);
    std::cout << room << a << b << both.pcount() << '\n';
    std::wcout << L"";
    std::clog << "";
    std::cerr << "to standard error " << 17 << '\n';
}

} // namespace

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    std::filesystem::current_path(argv[1]);
    exceptions();
    containers();
    expressions<char>();
    expressions<wchar_t>();
    // A second argument leaves out what needs several threads.
    if (argc < 3)
        threads();
    folders(argv[1]);
    old_streams();
    return 10;
}
