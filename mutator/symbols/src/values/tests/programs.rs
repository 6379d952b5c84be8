//! Programs in several languages, with the values that their sources pass.

use super::super::Item::{Argument, Return};
use super::{Address, Built, Expected, Float, Is, Item, Refused, check};

type Row = (&'static str, Item, Expected);

const CPP: &str = r#"
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
#define OUT __attribute__((noipa))
struct Plain { int a; };
struct Ended { int a; ~Ended() { std::puts(""); } };
struct Copied { long a; Copied(long a) : a(a) {} Copied(const Copied &other); };
Copied::Copied(const Copied &other) = default;
struct Defaulted { long a; Defaulted(long a) : a(a) {} Defaulted(const Defaulted &) = default; ~Defaulted() = default; };
struct Holds { Ended a; };
struct Inherits : Ended {};
struct Virtual { long a = 3; virtual void run() {} };
struct Moved { long a; Moved(long a) : a(a) {} Moved(const Moved &) = delete; Moved(Moved &&) = default; };
struct Assigned { long a; Assigned &operator=(Assigned &&); };
Assigned &Assigned::operator=(Assigned &&other) { a = other.a; return *this; }
struct Empty {};
struct Base { long a; };
struct Derived : Base, Empty {};
struct Triple { long a, b, c; };
enum class Mode : short { on = -3 };
OUT void plain(Plain p, Mode m, bool b, char16_t c) { std::printf("%d %d %d %d\n", p.a, (int)m, b, c); }
OUT int ended(Ended e, int k) { return e.a + k; }
OUT long copied(Copied c, long k) { return c.a + k; }
OUT long defaulted(Defaulted d, long k) { return d.a + k; }
OUT int holds(Holds h, int k) { return h.a.a + k; }
OUT int inherits(Inherits i, int k) { return i.a + k; }
OUT long virtuals(Virtual v, int k) { return v.a + k; }
OUT long moved(Moved m, int k) { return m.a + k; }
OUT long assigned(Assigned a, int k) { return a.a + k; }
OUT int empty(Empty, int k) { return k; }
OUT long derived(Derived d, int k) { return d.a + k; }
OUT Triple triple(int k, double x) { return {k, (long)x, 0}; }
OUT Ended made(int k) { return {k}; }
OUT Empty nothing(int k) { std::printf("%d\n", k); return {}; }
OUT std::chrono::milliseconds later(std::chrono::milliseconds t, const std::string &s, std::string v, int k) {
    return t + std::chrono::milliseconds(s.size() + v.size() + k); }
OUT int view(std::string_view s, std::unique_ptr<int> p, int k) { return s.size() + *p + k; }
OUT int pointers(int Plain::*a, int (Virtual::*b)() const, std::nullptr_t, int k) { return (a != nullptr) + (b != nullptr) + k; }
OUT int references(int &a, int &&b) { return a + b; }
OUT int dots(int a, ...) { return a; }
struct Shared { long a = 1; };
struct Left : virtual Shared {
    OUT Left(int x, long y);
    OUT long method(short k) const;
    OUT static int fixed(int k) { return k; }
    OUT Triple three(int k) { return {k, 0, 0}; }
    long b;
};
Left::Left(int x, long y) : b(x + y) {}
long Left::method(short k) const { return b + k; }
struct Right : Left { Right(int x) : Left(x, 7) {} };
template <class... T> OUT int packed(int first, T... rest, int last) { return first + (rest + ... + last); }
OUT int library(std::shared_ptr<int> a, std::pair<int, int> b, std::optional<short> c, std::vector<int> d, std::function<int()> e) {
    return *a + b.first + *c + d.size() + e(); }
struct Member { std::pair<short, short> a; Member() {} };
OUT int member(Member m, int k) { return m.a.first + k; }
template <class T> OUT T twice(T x) { return x + x; }
int main(int argc, char **) {
    plain({41}, Mode::on, true, u'x');
    ended({42}, 7); copied(Copied(43), 7); defaulted(Defaulted(44), 7); holds({{45}}, 7);
    Inherits i; i.a = 46; inherits(i, 7);
    virtuals(Virtual(), 7); moved(Moved(47), 7); assigned({48}, 7); empty({}, 7);
    Derived d; d.a = 48; derived(d, 7);
    triple(49, 2.5); made(50); nothing(51);
    later(std::chrono::milliseconds(-52), "abc", "de", 7);
    view("abc", std::make_unique<int>(3), 7);
    pointers(&Plain::a, nullptr, nullptr, 7);
    int here = 5; references(here, argc + 3);
    dots(53, 1, 2);
    Right right(54); right.method(-9); Left::fixed(55); right.three(56);
    twice<float>(1.5f);
    packed<long, short>(58, 59, -60, 61);
    library(std::make_shared<int>(1), {62, 63}, 64, {1, 2}, [] { return 3; });
    Member m; m.a = {65, 66}; member(m, 67);
    auto closure = [&](long k) __attribute__((noipa)) { return k + here; };
    return closure(57) == 0;
}
"#;

const OF_CPP: &[Row] = &[
    ("plain", Argument(1), Is(41)),
    ("plain", Argument(2), Is(-3)),
    ("plain", Argument(3), Is(1)),
    ("plain", Argument(4), Is(120)),
    (
        "plain",
        Argument(5),
        Refused("`plain(Plain, Mode, bool, char16_t)` has 4 arguments"),
    ),
    (
        "plain",
        Return,
        Refused("`plain(Plain, Mode, bool, char16_t)` returns nothing"),
    ),
    ("ended", Argument(1), Address),
    ("ended", Argument(2), Is(7)),
    ("ended", Return, Is(49)),
    ("copied", Argument(1), Address),
    ("copied", Argument(2), Is(7)),
    ("defaulted", Argument(1), Is(44)),
    ("defaulted", Argument(2), Is(7)),
    ("holds", Argument(1), Address),
    ("holds", Argument(2), Is(7)),
    ("inherits", Argument(1), Address),
    ("inherits", Argument(2), Is(7)),
    ("virtuals", Argument(1), Address),
    ("virtuals", Argument(2), Is(7)),
    ("moved", Argument(1), Is(47)),
    ("moved", Argument(2), Is(7)),
    ("moved", Return, Is(54)),
    (
        "assigned",
        Argument(1),
        Refused(
            "argument 1 of `assigned(Assigned, int)`, `Assigned a`, may be passed in memory or not: the debug information does not say",
        ),
    ),
    (
        "assigned",
        Argument(2),
        Refused(
            "argument 2 of `assigned(Assigned, int)`, `int k`, comes after a value whose registers are not known",
        ),
    ),
    (
        "empty",
        Argument(1),
        Refused("argument 1 of `empty(Empty, int)`, `Empty`, is empty"),
    ),
    ("empty", Argument(2), Is(7)),
    ("derived", Argument(1), Is(48)),
    ("derived", Argument(2), Is(7)),
    ("triple", Argument(1), Is(49)),
    ("triple", Argument(2), Float(2.5)),
    (
        "triple",
        Return,
        Refused("the return value of `triple(int, double)`, `Triple`, is returned in memory"),
    ),
    ("made", Argument(1), Is(50)),
    (
        "made",
        Return,
        Refused("the return value of `made(int)`, `Ended`, is returned in memory"),
    ),
    ("nothing", Argument(1), Is(51)),
    (
        "nothing",
        Return,
        Refused("the return value of `nothing(int)`, `Empty`, is empty"),
    ),
    ("later", Argument(1), Is(-52)),
    ("later", Argument(2), Address),
    ("later", Argument(3), Address),
    ("later", Argument(4), Is(7)),
    ("later", Return, Is(-40)),
    ("view", Argument(2), Address),
    ("view", Argument(3), Is(7)),
    ("pointers", Argument(3), Is(0)),
    ("pointers", Argument(4), Is(7)),
    ("references", Argument(1), Address),
    ("references", Argument(2), Address),
    ("references", Return, Is(9)),
    ("dots", Argument(1), Is(53)),
    (
        "dots",
        Argument(2),
        Refused("`dots(int, ...)` has 1 argument before its `...`"),
    ),
    ("_ZN4LeftC2Eil", Argument(1), Address),
    ("_ZN4LeftC2Eil", Argument(2), Is(54)),
    ("_ZN4LeftC2Eil", Argument(3), Is(7)),
    ("Left::method", Argument(1), Address),
    ("Left::method", Argument(2), Is(-9)),
    ("Left::method", Return, Is(52)),
    ("Left::fixed", Argument(1), Is(55)),
    ("Left::three", Argument(1), Address),
    ("Left::three", Argument(2), Is(56)),
    ("packed<long, short>", Argument(1), Is(58)),
    ("packed<long, short>", Argument(2), Is(59)),
    ("packed<long, short>", Argument(3), Is(-60)),
    ("packed<long, short>", Argument(4), Is(61)),
    ("library", Argument(1), Address),
    ("library", Argument(2), Is(62 + (63 << 32))),
    ("library", Argument(4), Address),
    ("library", Argument(5), Address),
    ("member", Argument(1), Is(65 + (66 << 16))),
    ("member", Argument(2), Is(67)),
    ("twice<float>", Argument(1), Float(1.5)),
    ("twice<float>", Return, Float(3.0)),
    ("_ZZ4mainENKUllE0_clEl", Argument(1), Address),
    ("_ZZ4mainENKUllE0_clEl", Argument(2), Is(57)),
];

#[test]
fn classes_of_cpp_are_passed_by_value_or_by_reference() {
    let all: [&[&str]; 8] = [
        &["-O2"],
        &["-O3"],
        &["-Og"],
        &["-O0"],
        &["-O2", "-gdwarf-4"],
        &["-O2", "-gdwarf-4", "-fdebug-types-section"],
        &["-O2", "-gdwarf-5", "-fdebug-types-section"],
        &["-O2", "-flto"],
    ];
    for flags in all {
        let name = format!("cpp{}", flags.concat());
        check(&Built::new(&name, "cc", CPP, flags), OF_CPP);
    }
}

const FORTRAN: &str = r#"
module m
  use iso_c_binding
  type, bind(c) :: point
    integer(c_int) :: a, b
  end type
contains
  subroutine plain(a, b, c, n)
    integer :: a, n
    real(8) :: b
    real(8) :: c(n)
    c(1) = a + b
  end subroutine
  subroutine mixed(a, b, v, s, w, p) bind(c)
    integer(c_int), value :: a
    real(c_double), value :: b
    real(c_double) :: v(:)
    character(kind=c_char), value :: s
    integer(c_long), optional :: w
    type(point), value :: p
    v(1) = a + b + ichar(s) + p%a
    if (present(w)) w = a
  end subroutine
  function text(s, k) result(r)
    character(len=*) :: s
    integer, value :: k
    character(len=k) :: r
    r = s(1:k)
  end function
  function whole(x, k) result(r)
    real(8), intent(in) :: x(:)
    integer, value :: k
    real(8) :: r(size(x))
    r = x * k
  end function
  function squared(x, k) result(r)
    complex(8) :: x, r
    integer, value :: k
    r = x * x * k
  end function
  function real_one(x, i) result(r)
    real(8), value :: x
    integer, value :: i
    real(8) :: r
    r = x * x + i
  end function
  function optional_one(i, o) result(r)
    integer, value :: i
    integer, optional, value :: o
    logical :: r
    r = i == 3
    if (present(o)) r = o == 4
  end function
end module
program p
  use m
  real(8) :: c(3)
  integer(c_long) :: q
  call plain(1, 2d0, c, 3)
  call mixed(-4_c_int, 2.5d0, c, 'x', q, point(6, 7))
  print *, text("hello", 3), whole(c, 5), squared((1d0,2d0), 6), real_one(3d0, 4), optional_one(-3, 4), q
end program
"#;

const OF_FORTRAN: &[Row] = &[
    ("__m_MOD_plain", Argument(1), Address),
    ("__m_MOD_plain", Argument(2), Address),
    ("__m_MOD_plain", Argument(3), Address),
    ("__m_MOD_plain", Argument(4), Address),
    (
        "__m_MOD_plain",
        Argument(5),
        Refused("`__m_MOD_plain` has 4 arguments"),
    ),
    ("mixed", Argument(1), Is(-4)),
    ("mixed", Argument(2), Float(2.5)),
    ("mixed", Argument(3), Address),
    ("mixed", Argument(4), Is(120)),
    ("mixed", Argument(5), Address),
    ("mixed", Argument(6), Is(6 + (7 << 32))),
    ("__m_MOD_text", Argument(1), Address),
    ("__m_MOD_text", Argument(2), Is(3)),
    (
        "__m_MOD_text",
        Argument(3),
        Refused("`__m_MOD_text` has 2 arguments"),
    ),
    ("__m_MOD_whole", Argument(1), Address),
    ("__m_MOD_whole", Argument(2), Is(5)),
    ("__m_MOD_squared", Argument(1), Address),
    ("__m_MOD_squared", Argument(2), Is(6)),
    (
        "__m_MOD_squared",
        Return,
        Refused(
            "the return value of `__m_MOD_squared`, `complex(kind=8)`, is in more than one register",
        ),
    ),
    ("__m_MOD_real_one", Argument(1), Float(3.0)),
    ("__m_MOD_real_one", Argument(2), Is(4)),
    ("__m_MOD_real_one", Return, Float(13.0)),
    ("__m_MOD_optional_one", Argument(1), Is(-3)),
    ("__m_MOD_optional_one", Argument(2), Is(4)),
    ("__m_MOD_optional_one", Return, Is(1)),
];

#[test]
fn arguments_of_fortran_are_addresses_unless_they_have_value() {
    for flags in [&["-O0"], &["-O2"]] {
        let name = format!("fortran{}", flags[0]);
        let built = Built::new(
            &name,
            "f90",
            FORTRAN,
            &[
                flags[0],
                "-fno-inline",
                "-fno-ipa-cp",
                "-fno-ipa-sra",
                "-fno-ipa-vrp",
            ],
        );
        check(&built, OF_FORTRAN);
    }
}

const RUST: &str = r#"
#![allow(dead_code)]
use std::hint::black_box;
#[derive(Clone, Copy, PartialEq)]
pub enum Mode { One = 1, Seven = 7 }
pub struct Pair { a: i32, b: u8 }
#[unsafe(no_mangle)] #[inline(never)]
pub fn scalars(a: i32, b: u8, c: f64, d: &i32, e: bool, f: char, g: f32) -> i64 {
    black_box(a as i64 + b as i64 + c as i64 + *d as i64 + e as i64 + f as i64 + g as i64)
}
#[unsafe(no_mangle)] #[inline(never)]
pub fn slice(s: &str, n: usize) -> usize { black_box(s.len() + n) }
#[unsafe(no_mangle)] #[inline(never)]
pub fn pair(n: i8, p: Pair) -> i8 { black_box(n + p.a as i8 + p.b as i8) }
#[unsafe(no_mangle)] #[inline(never)]
pub fn some(n: i8) -> Option<i32> { black_box(Some(n.into())) }
#[unsafe(no_mangle)] #[inline(never)]
pub fn mode(m: Mode, n: i16) { black_box((m, n)); }
#[unsafe(no_mangle)] #[inline(never)]
pub extern "C" fn foreign(n: i8, k: i16) -> i8 { black_box(n + k as i8) }
fn main() {
    let n = black_box(-5);
    scalars(n, 200, 3.5, &n, true, 'x', 2.5);
    slice("abc", 7); pair(1, Pair { a: 2, b: 3 }); some(9);
    mode(Mode::Seven, -8); foreign(-9, 1);
}
"#;

const OF_RUST: &[Row] = &[
    ("scalars", Argument(1), Is(-5)),
    ("scalars", Argument(2), Is(200)),
    ("scalars", Argument(3), Float(3.5)),
    ("scalars", Argument(4), Address),
    ("scalars", Argument(5), Is(1)),
    ("scalars", Argument(6), Is(120)),
    ("scalars", Return, Is(-5 + 200 + 3 - 5 + 1 + 120 + 2)),
    (
        "slice",
        Argument(2),
        Refused("`slice` is Rust and `s` is not a scalar, so its registers are not specified"),
    ),
    (
        "pair",
        Argument(1),
        Refused("`pair` is Rust and `p` is not a scalar, so its registers are not specified"),
    ),
    (
        "some",
        Argument(1),
        Refused(
            "`some` is Rust and `Option<i32>` is not a scalar, so its registers are not specified",
        ),
    ),
    ("mode", Argument(1), Is(7)),
    ("mode", Argument(2), Is(-8)),
    ("mode", Return, Refused("`mode` returns nothing")),
    ("foreign", Argument(1), Is(-9)),
    ("foreign", Argument(2), Is(1)),
    ("foreign", Return, Is(-8)),
];

#[test]
fn rust_functions_of_scalars_are_read_and_others_refused() {
    for flags in [&["-g", "-Copt-level=3"], &["-g", "-Copt-level=0"]] {
        let name = format!("rust{}", flags[1]);
        check(&Built::new(&name, "rs", RUST, flags), OF_RUST);
    }
}
