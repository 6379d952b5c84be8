use super::*;
use patcher::function::demangle;

const STRING: &str =
    "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >";

#[test]
fn names_take_the_longest_form_that_fits() {
    let get = format!(
        "shop::Item const& shop::cache::LruCache<{STRING}, shop::Item, \
         std::hash<{STRING} > >::get({STRING} const&)"
    );
    for (width, shown) in [
        (
            120,
            "shop::Item const& shop::cache::LruCache<std::string, shop::Item>::get(std::string const&)",
        ),
        (70, "shop::cache::LruCache<std::string, shop::Item>::get"),
        (45, "shop::cache::LruCache<...>::get"),
        (25, "LruCache<...>::get"),
        (12, "LruCac…::get"),
    ] {
        assert_eq!(fit(&get, width), shown, "{width}");
    }
}

#[test]
fn each_kind_of_name_has_a_short_form() {
    for (name, shown) in [
        ("main", "main"),
        (
            "std::vector<int, std::allocator<int> >::push_back(int const&)",
            "vector<...>::push_back",
        ),
        (
            "std::ostream& operator<< <int>(std::ostream&, int)",
            "operator<< <...>",
        ),
        ("ns::A<int>::operator()(int) const", "A<...>::operator()"),
        (
            "ns::A<int>::operator std::string() const",
            "A<...>::operator string",
        ),
        ("(anonymous namespace)::Parser::parse(int)", "Parser::parse"),
        (
            "ns::f(int)::{lambda(int, long)#1}::operator()(int, long) const",
            "ns::f::{lambda(...)#1}::operator()",
        ),
        ("ns::f(int) [clone .constprop.0]", "ns::f"),
        ("ns::f(int) [clone .cold]", "ns::f [clone .cold]"),
        (
            "ns::f(int) [clone .isra.0] [clone .cold]",
            "ns::f [clone .isra.0] [clone .cold]",
        ),
        ("work [coroutine body]", "work [coroutine body]"),
        (
            "<alloc::vec::Vec<T> as core::iter::traits::collect::Extend<T>>::extend",
            "<Vec<...> as Extend<...>>::extend",
        ),
        (
            "tokio::runtime::task::harness::poll_future::{{closure}}::{{closure}}",
            "harness::poll_future::{{closure}}",
        ),
        (
            "core::ptr::drop_in_place<alloc::vec::Vec<u8>>",
            "ptr::drop_in_place<...>",
        ),
        (
            "encoding/json.(*decodeState).object",
            "encoding/json.(*decodeState).object",
        ),
        (
            "decltype(auto) std::__detail::f<int>(int)",
            "__detail::f<...>",
        ),
    ] {
        assert_eq!(
            Parts::of(name).expect(name).write(Form::SHORT),
            shown,
            "{name}"
        );
    }
}

#[test]
fn names_without_structure_lose_their_middle() {
    for (name, width, shown) in [
        (
            "a_function_of_c_with_a_long_name",
            20,
            "a_func…h_a_long_name",
        ),
        ("void (*choose(int))(int)", 16, "(*choose(int))"),
        (
            "shop::recommend_for_everybody",
            24,
            "…recommend_for_everybody",
        ),
        (
            "<a::Store<K, V> as b::Lookup<K>>::look_up",
            24,
            "Store<...>::look_up",
        ),
        ("shop::recommend_for_everybody", 20, "recomm…for_everybody"),
        (
            "shop::recommend::{{closure}}::{{closure}}",
            12,
            "recommend{}",
        ),
        (
            "shop::recommend::{{closure}}::{{closure}}",
            30,
            "shop::recommend::{{closure}}",
        ),
        ("f(>", 2, "…>"),
        ("main", 1, "…"),
        ("main", 0, ""),
    ] {
        assert_eq!(fit(name, width), shown);
    }
}

#[test]
fn namesakes_get_back_what_tells_them_apart() {
    let all = [
        "shop::LruCache<int, shop::Item>::get(int)",
        "shop::LruCache<long, shop::Item>::get(long)",
        "shop::Order::Order(int)",
        "shop::Order::Order(shop::Order const&)",
        "shop::Order::Order(int)",
    ];
    let shown = [
        "LruCache<int, Item>::get",
        "LruCache<long, Item>::get",
        "Order::Order(int)",
        "Order::Order(Order const&)",
        "Order::Order(int)",
    ];
    assert_eq!(fit_all(&all, 33), shown);
    // A function that is listed twice is not shortened against itself.
    assert_eq!(
        fit_all(&[all[0], all[0], all[1]], 20),
        [
            "LruCache<int, It…get",
            "LruCache<int, It…get",
            "LruCache<long, I…get"
        ]
    );
    // `shop::LruCache<...>::get` could be either of them.
    assert_eq!(
        fit_all(&all[..2], 24),
        ["LruCache<int, Item>::get", "LruCache<...>::get(long)"]
    );
}

/// 2,000 functions of libstdc++, LLVM, Boost, V8, tokio and the Rust standard library.
pub(crate) fn large_projects() -> Vec<String> {
    let names: Vec<String> = include_str!("names.txt").lines().map(demangle).collect();
    assert_eq!(names.iter().collect::<FxHashSet<_>>().len(), 2000);
    names
}

/// The widths of names, and the number of functions that may differ only by a fingerprint.
const WIDTHS: [(usize, usize); 4] = [(40, 100), (60, 80), (100, 70), (140, 60)];

/// Asserts that no two functions look the same, that all fit into `width` columns, and that at most
/// `most_marked` differ only by a fingerprint.
fn check_different(shown: &[String], width: usize, most_marked: usize) {
    assert!(shown.iter().all(|text| text.width() <= width), "{width}");
    let different: FxHashSet<&String> = shown.iter().collect();
    assert_eq!(different.len(), shown.len(), "{width}");
    let is_marked = |text: &&String| text.contains(" #");
    let marked = shown.iter().filter(is_marked).count();
    assert!(marked <= most_marked, "{width}: {marked} have a number");
}

#[test]
fn functions_of_large_projects_look_different() {
    let names = large_projects();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for (width, most_marked) in WIDTHS {
        check_different(&fit_all(&names, width), width, most_marked);
    }
}

/// The columns for the first name of a chain with its mark.
fn firsts_room(width: usize, has_caller: bool) -> usize {
    if has_caller {
        (width - " < ".len()) / 2
    } else {
        width
    }
}

/// A function that is inlined, alone and before its caller.
#[test]
fn marked_functions_look_different_and_keep_their_methods() {
    const MARK: &str = " (inlined)";
    let names = large_projects();
    for (width, most_marked) in WIDTHS {
        for has_caller in [false, true] {
            let chain = |(index, name): (usize, &String)| {
                let mut links = vec![Link::of(name.as_str())];
                links[0].mark = MARK.to_owned();
                let caller = &names[(index + 1) % names.len()];
                links.extend(has_caller.then(|| Link::of(caller.as_str())));
                Chain { links, room: width }
            };
            let chains: Vec<Chain> = names.iter().enumerate().map(chain).collect();
            let shown = fit_chains(&chains, " < ");
            assert!(shown.iter().all(|text| text.width() <= width), "{width}");
            let mut firsts = Vec::new();
            let mut cut = Vec::new();
            for (text, name) in shown.iter().zip(&names) {
                let Some((first, _)) = text.split_once(MARK) else {
                    panic!("{width}: {text} for {name}");
                };
                firsts.push(first.to_owned());
                let method = Parts::of(name).map_or(String::new(), |parts| parts.method());
                let taken = MARK.len() + LEAST + " #1234".len();
                let room = firsts_room(width, has_caller).saturating_sub(taken);
                // Closures are folded, and conversions to strings have an alias.
                let is_plain = !method.starts_with(['{']) && !method.starts_with("operator ");
                if method.width() <= room && is_plain && !first.contains(&method) {
                    cut.push((text, name));
                }
            }
            assert!(
                cut.is_empty(),
                "{width}: {} {:#?}",
                cut.len(),
                &cut[..cut.len().min(10)]
            );
            // Half of a line is too little for many of them.
            let most_marked = if has_caller { names.len() } else { most_marked };
            check_different(&firsts, width, most_marked);
        }
    }
}

/// The suffix of a clone, and closures in closures, are shown only to tell functions apart.
#[test]
fn clones_and_nested_closures_are_told_apart() {
    let push = "shop::Queue<std::shared_ptr<int> >::push(int) [clone .isra.0]";
    assert_eq!(
        fit(push, 60),
        "shop::Queue<std::shared_ptr<int>>::push(int)"
    );
    assert_eq!(fit(push, 30), "shop::Queue<...>::push");
    assert_eq!(fit_all(&[push, "main"], 30)[0], "shop::Queue<...>::push");
    let both = [push, "shop::Queue<std::shared_ptr<int> >::push(int)"];
    assert_eq!(
        fit_all(&both, 60),
        ["Queue<...>::push [clone .isra.0]", "Queue<...>::push"]
    );
    let closures = [
        "shop::run::{{closure}}",
        "shop::run::{{closure}}::{{closure}}",
    ];
    assert_eq!(fit_all(&closures, 60), closures);
    assert_eq!(
        fit_all(&closures, 34),
        ["shop::run::{{closure}}", "run{}{}"]
    );
}
