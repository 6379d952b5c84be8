// Calls the parts of strings, streams, files, facets and conversions that libstdc++ contains as
// compiled code, for both character types. Its argument is a folder of its own, initially empty.
// Its output depends on nothing else, and neither does the number of calls of each function.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#include <algorithm>
#include <array>
#include <bitset>
#include <charconv>
#include <codecvt>
#include <complex>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <iterator>
#include <locale>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <ext/stdio_filebuf.h>
#include <ext/stdio_sync_filebuf.h>

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

template <class C>
void strings()
{
    using String = std::basic_string<C>;
    String a = text<C>("the quick brown fox"), b(5, C('x')), c(a, 4, 5), d(a.begin(), a.end());
    a += text<C>(" jumps");
    a.append(b, 1, 3).append(3, C('!')).append(text<C>("end").c_str()).push_back(C('.'));
    a.insert(3, text<C>(" very"));
    a.insert(a.begin() + 2, C('E'));
    a.insert(0, b.c_str(), 2).insert(1, 2, C('-')).insert(4, c, 1, 2).insert(2, b.c_str());
    std::cout << narrow(a) << ' ' << a.size() << '\n';
    a.replace(2, 3, b).replace(0, 1, c, 1, 3).replace(5, 2, 4, C('=')).replace(1, 2, b.c_str());
    a.replace(a.begin(), a.begin() + 2, c).replace(3, 1, b.c_str(), 2);
    a.replace(a.begin() + 1, a.begin() + 3, 5, C('r'));
    std::cout << narrow(a) << '\n';
    for (auto at : {a.find(c), a.find(C('q')), a.find(b.c_str(), 1), a.rfind(C('o')), a.rfind(c),
                    a.find_first_of(b), a.find_last_of(text<C>("fox")), a.rfind(b.c_str()),
                    a.find_first_not_of(text<C>("the ")), a.find_last_not_of(C('.')),
                    a.find_first_not_of(C('t')), a.find_last_not_of(text<C>("dne."))})
        std::cout << static_cast<long>(at) << ' ';
    std::cout << (a.compare(d) > 0) << (a.compare(1, 3, d) > 0) << (d.compare(d.c_str()) == 0)
              << (a.compare(0, 2, d, 1, 2) > 0) << (d.compare(0, 3, d.c_str()) == 0) << (a < b)
              << (a == a.c_str()) << '\n';
    a.erase(3, 4);
    a.erase(a.begin());
    a.erase(a.begin() + 1, a.begin() + 3);
    a.reserve(500);
    a.shrink_to_fit();
    a.resize(30, C('z'));
    a.resize(10);
    a.pop_back();
    a.swap(b);
    C room[20] = {};
    std::cout << b.copy(room, 5, 1) << narrow(room) << narrow(b.substr(2, 4)) << a.capacity() / 100;
    a.assign(b, 1, 4).assign(3, C('q')).assign(room).assign(b.begin(), b.end());
    d = std::move(b);
    d = C('1');
    d = room;
    d = a + c + C('+') + room + (C('<') + a) + (room + a);
    std::cout << ' ' << narrow(d) << d.front() << d.back() << d.at(2) << '\n';
    throws("at", [&] { (void)d.at(1000); });
    throws("substr", [&] { (void)d.substr(1000); });
    throws("reserve", [&] { d.reserve(d.max_size() + 1); });
    throws("insert", [&] { d.insert(5000, d); });
    std::cout << std::stoi(text<C>("12")) << std::stol(text<C>("-5"))
              << std::stoull(text<C>("9"), nullptr, 8 + 8) << std::stod(text<C>("2.5"))
              << std::stof(text<C>("1e3")) << std::stold(text<C>("0.25")) << '\n';
    throws("stoi", [&] { (void)std::stoi(text<C>("none")); });
    throws("stol", [&] { (void)std::stol(text<C>("99999999999999999999")); });
    std::cout << std::hash<String>()(text<C>("hash me")) << '\n';
    String line;
    std::basic_istringstream<C> lines(text<C>("first line\nsecond\n\nlast"));
    while (std::getline(lines, line))
        std::cout << narrow(line) << '|';
    std::cout << '\n';
}

template <class C>
void streams()
{
    using Out = std::basic_ostringstream<C>;
    using In = std::basic_istringstream<C>;
    Out out;
    out << true << std::boolalpha << false << C('c') << 'd' << short(-1) << 2u << 3l << 4ul << 5ll
        << 6ull;
    out << ' ' << 1.5 << ' ' << 2.5f << ' ' << 3.5L << ' ' << std::hex << std::showbase << 255
        << std::oct << 8;
    out << std::dec << ' ' << std::setw(8) << std::setfill(C('*')) << 42 << std::left
        << std::setw(6) << -7;
    out << std::internal << std::setw(7) << -8 << std::right << std::showpos << 9 << std::noshowpos;
    out << std::fixed << std::setprecision(3) << 3.14159 << std::scientific << 31415.9
        << std::hexfloat << 1.0;
    out << std::defaultfloat << std::uppercase << 1e100 << ' ' << text<C>("string") << ' '
        << "chars";
    out << static_cast<const void *>(nullptr) << std::endl << std::ends << std::flush;
    out << std::put_time(std::gmtime(std::array<std::time_t, 1>{1700000000}.data()),
                         text<C>("%c %x %F %A").c_str());
    out << std::put_money(12345.0L) << std::quoted(text<C>("quo\"ted"))
        << std::complex<double>(1, -2);
    out << std::bitset<12>(1234) << std::error_code(2, std::generic_category());
    out.put(C('!')).write(text<C>("written").c_str(), 4);
    std::cout << out.tellp() << ' ' << narrow(out.str()) << '\n';
    out.seekp(2);
    out.str(text<C>("again"));

    In in(text<C>("12 -7 0x1f 3.5 1e2 true word  c (1,2) 077 \"quo ted\" 42abc"));
    int i = 0;
    long l = 0;
    unsigned u = 0;
    double d = 0;
    float f = 0;
    bool truth = false;
    std::basic_string<C> word, quoted;
    C c = 0;
    std::complex<double> z;
    in >> i >> l >> std::hex >> u >> std::dec >> d >> f >> std::boolalpha >> truth >> word >> c >>
        z;
    in >> std::oct >> i >> std::dec >> std::quoted(quoted) >> std::noskipws >> std::ws >> i;
    std::cout << i << l << u << d << f << truth << narrow(word) << narrow(quoted) << z << in.good()
              << '\n';
    C room[10] = {};
    std::cout << (in.peek() == C('a')) << narrow(std::basic_string<C>(1, static_cast<C>(in.get())));
    in.unget();
    in.putback(C('2'));
    in.get(room, 3).get(c).ignore(100);
    std::cout << narrow(room) << in.gcount() << in.eof() << in.fail() << in.tellg() << '\n';
    in.clear();
    in.seekg(3).read(room, 4);
    std::cout << narrow(room) << in.readsome(room, 3) << in.sync() << in.rdstate() << '\n';
    in.seekg(-5, std::ios::end).getline(room, 9);
    std::cout << narrow(room) << '\n';
    In bad(text<C>("notanumber 99999999999999999999 300 -1"));
    bad >> i;
    bad.clear();
    bad >> word >> l;
    std::cout << i << ' ' << l << ' ' << bad.fail() << '\n';
    bad.clear();
    short s;
    unsigned short us;
    unsigned long long ull;
    long long ll;
    long double ld;
    void *pointer;
    In more(text<C>("70000 -1 5 6 7.5 0x10"));
    more >> s;
    more.clear();
    more >> us >> ull >> ll >> ld >> pointer;
    std::cout << s << us << ull << ll << ld << pointer << '\n';
    throws("exceptions", [&] {
        more.exceptions(std::ios::failbit | std::ios::eofbit);
        more >> word;
    });
    std::basic_stringstream<C> both;
    both << text<C>("a b c");
    std::basic_string<C> joined;
    for (std::istream_iterator<std::basic_string<C>, C> at(both), end; at != end; ++at)
        joined += *at;
    std::copy(joined.begin(), joined.end(), std::ostreambuf_iterator<C>(out));
    std::cout << narrow(joined) << narrow(out.str()) << '\n';
    both.copyfmt(out);
    both.imbue(std::locale::classic());
    std::basic_stringstream<C> moved(std::move(both));
    moved.swap(both);
    std::cout << moved.width() << both.precision() << (both.rdbuf() != nullptr) << '\n';
}

template <class C>
void files(const std::string &folder)
{
    const std::string name = folder + "/stream";
    {
        std::basic_ofstream<C> out(name);
        for (int i = 0; i < 2000; i++)
            out << i << text<C>(" line ") << i * 0.5 << C('\n');
        out.flush();
        std::cout << out.is_open() << out.tellp() << '\n';
    }
    std::basic_fstream<C> file(name, std::ios::in | std::ios::out);
    std::basic_string<C> line;
    long sum = 0;
    for (int i; file >> i && std::getline(file, line);)
        sum += i + static_cast<long>(line.size());
    file.clear();
    file.seekg(10);
    file >> line;
    file.seekp(0, std::ios::end);
    file << text<C>("more");
    file.sync();
    std::cout << sum << narrow(line) << file.tellp() << '\n';
    file.close();
    std::basic_ifstream<C> in(name, std::ios::binary | std::ios::ate);
    C buffer[64];
    in.rdbuf()->pubsetbuf(buffer, 64);
    in.seekg(0);
    std::cout << std::count(std::istreambuf_iterator<C>(in), std::istreambuf_iterator<C>(), C('\n'))
              << '\n';
    std::basic_ifstream<C> none(folder + "/none");
    std::cout << none.is_open() << none.fail() << '\n';
    std::basic_filebuf<C> buf;
    std::cout << (buf.open(name, std::ios::in) != nullptr) << buf.in_avail()
              << (buf.close() != nullptr) << '\n';
    std::FILE *stream = std::fopen(name.c_str(), "r+");
    __gnu_cxx::stdio_sync_filebuf<C> synced(stream);
    std::cout << (synced.sgetc() == C('0')) << (synced.sbumpc() == C('0')) << synced.sungetc()
              << synced.sputn(buffer, 2) << '\n';
    __gnu_cxx::stdio_filebuf<C> around(stream, std::ios::in);
    std::cout << (around.sgetc() != 0) << '\n';
    around.close();
    std::fclose(stream);
}

template <class C>
void facets()
{
    const std::locale c = std::locale::classic(), named("C.UTF-8"),
                      mixed(c, named, std::locale::ctype);
    std::locale own(c, new std::numpunct<C>(1));
    std::cout << c.name() << ' ' << named.name() << ' ' << mixed.name() << ' ' << (c == named)
              << own.name() << '\n';
    for (const std::locale &l : {c, named, mixed}) {
        std::basic_ostringstream<C> out;
        out.imbue(l);
        const auto &type = std::use_facet<std::ctype<C>>(l);
        std::basic_string<C> word = text<C>("Word 12, X");
        C *data = &word[0];
        std::cout << type.is(std::ctype_base::alpha, data[0])
                  << type.is(std::ctype_base::digit, data[1]);
        std::cout << type.scan_is(std::ctype_base::space, data, data + 9) - data
                  << type.scan_not(std::ctype_base::alpha, data, data + 9) - data;
        type.toupper(data, data + word.size());
        type.tolower(data, data + 2);
        char narrowed[20] = {};
        type.narrow(data, data + word.size(), '?', narrowed);
        C widened[5];
        type.widen("abcd", "abcd" + 4, widened);
        std::cout << narrowed << type.narrow(widened[2], '?')
                  << narrow(std::basic_string<C>(1, type.widen('w')));
        const auto &collate = std::use_facet<std::collate<C>>(l);
        std::cout << collate.compare(data, data + 3, data + 1, data + 5)
                  << collate.hash(data, data + 4) % 1000 << collate.transform(data, data + 3).size()
                  << '\n';
        const auto &punct = std::use_facet<std::numpunct<C>>(l);
        std::cout << narrow(std::basic_string<C>(1, punct.decimal_point()))
                  << punct.grouping().size() << narrow(punct.truename())
                  << narrow(punct.falsename());
        const auto &money = std::use_facet<std::moneypunct<C>>(l);
        std::cout << money.frac_digits() << narrow(money.curr_symbol())
                  << money.neg_format().field[0];
        std::ostreambuf_iterator<C> to(out);
        std::use_facet<std::num_put<C>>(l).put(to, out, C(' '), 1234567L);
        std::use_facet<std::num_put<C>>(l).put(to, out, C(' '), 1234.5);
        std::use_facet<std::money_put<C>>(l).put(to, false, out, C(' '), 1234.0L);
        std::use_facet<std::money_put<C>>(l).put(to, true, out, C(' '), text<C>("-567"));
        std::tm tm = {};
        tm.tm_mon = 4;
        tm.tm_year = 99;
        std::use_facet<std::time_put<C>>(l).put(to, out, C(' '), &tm, 'B');
        std::cout << narrow(out.str());
        std::basic_istringstream<C> in(
            text<C>("May 12/31/99 13:14:15 Tuesday 1999 1.250.000,5 $5.00 77"));
        in.imbue(l);
        std::istreambuf_iterator<C> from(in), end;
        std::ios_base::iostate state = std::ios::goodbit;
        const auto &times = std::use_facet<std::time_get<C>>(l);
        from = times.get_monthname(from, end, in, state, &tm);
        from = times.get_date(++from, end, in, state, &tm);
        from = times.get_time(++from, end, in, state, &tm);
        from = times.get_weekday(++from, end, in, state, &tm);
        from = times.get_year(++from, end, in, state, &tm);
        std::cout << ' ' << tm.tm_mon << tm.tm_mday << tm.tm_hour << tm.tm_wday << tm.tm_year
                  << times.date_order();
        long double units = 0;
        std::use_facet<std::money_get<C>>(l).get(++from, end, false, in, state, units);
        long value = 0;
        state = std::ios::goodbit;
        std::use_facet<std::num_get<C>>(l).get(from, end, in, state, value);
        std::basic_istringstream<C> dated(text<C>("2024-02-29 10:11"));
        dated.imbue(l);
        dated >> std::get_time(&tm, text<C>("%Y-%m-%d %H:%M").c_str());
        std::cout << ' ' << units << value << state << tm.tm_year << tm.tm_hour << dated.fail()
                  << '\n';
        const auto &messages = std::use_facet<std::messages<C>>(l);
        auto catalogue = messages.open("none", l);
        std::cout << catalogue << '\n';
    }
    const auto &convert = std::use_facet<std::codecvt<wchar_t, char, std::mbstate_t>>(named);
    std::mbstate_t state = {};
    const char from[] = "gr\303\274n";
    const char *from_end;
    wchar_t wide[8], *wide_end;
    std::cout << convert.in(state, from, from + 5, from_end, wide, wide + 8, wide_end)
              << wide_end - wide << convert.max_length() << convert.always_noconv()
              << convert.length(state, from, from + 5, 3) << '\n';
}

void conversions()
{
    std::wstring_convert<std::codecvt_utf8<wchar_t>> utf8;
    std::wstring_convert<std::codecvt_utf8_utf16<char16_t>, char16_t> utf16;
    std::wstring_convert<std::codecvt_utf16<char32_t>, char32_t> big;
    std::cout << utf8.from_bytes("\342\202\254uro").size() << utf8.to_bytes(L"\u20ac\u00fc").size()
              << utf16.from_bytes("\360\237\230\200").size() << utf16.to_bytes(u"\u20ac").size()
              << big.to_bytes(U"\U0001f600x").size()
              << big.from_bytes(std::string("\0a\0b", 4)).size() << '\n';
    throws("from_bytes", [&] { (void)utf8.from_bytes("\377\376"); });
    for (double x : {0.0, 1.5, -2.75e-5, 1e300, 3.141592653589793, 5e-324}) {
        char room[400];
        for (auto format : {std::chars_format::general, std::chars_format::fixed,
                            std::chars_format::scientific, std::chars_format::hex}) {
            auto shortest = std::to_chars(room, room + 400, x, format);
            std::cout << std::string_view(room, static_cast<std::size_t>(shortest.ptr - room))
                      << ' ';
            auto precise = std::to_chars(room, room + 400, x, format, 4);
            std::cout << std::string_view(room, static_cast<std::size_t>(precise.ptr - room))
                      << ' ';
        }
        auto with_float = std::to_chars(room, room + 100, static_cast<float>(x));
        std::cout << std::string_view(room, static_cast<std::size_t>(with_float.ptr - room)) << ' ';
        auto with_long = std::to_chars(room, room + 100, static_cast<long double>(x));
        double back = 1;
        auto parsed = std::from_chars(room, with_long.ptr, back);
        float small = 0;
        std::from_chars(room, with_long.ptr, small);
        long double large = 0;
        std::from_chars(room, with_long.ptr, large, std::chars_format::general);
        std::cout << (back == x) << (parsed.ptr == with_long.ptr) << small << ' ' << large << '\n';
    }
    for (const char *bits : {"101", "0"})
        std::cout << std::bitset<70>(bits).to_ulong() << std::bitset<70>(bits).to_string().size();
    std::cout << std::to_string(12) << std::to_string(2.5) << std::to_wstring(7).size() << '\n';
}

} // namespace

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    strings<char>();
    strings<wchar_t>();
    streams<char>();
    streams<wchar_t>();
    files<char>(argv[1]);
    files<wchar_t>(argv[1]);
    facets<char>();
    facets<wchar_t>();
    conversions();
    std::locale::global(std::locale("C.UTF-8"));
    std::cout << std::locale().name() << std::ios_base::sync_with_stdio(false) << '\n';
    std::cout.flush();
    std::exit(9);
}
