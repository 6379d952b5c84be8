//! Texts that are conditions, texts that are not, and the messages about these.

use super::{Condition, Operand, Relation, Timer};
use ipath_symbols::values::Item;
use proptest::prelude::*;

fn parsed(text: &str) -> Result<(String, Relation, i64), String> {
    let condition = text.parse::<Condition>().map_err(|e| e.to_string())?;
    let operand = condition.operand().to_string();
    Ok((operand, condition.relation(), condition.value()))
}

#[test]
fn what_is_written_is_compared() {
    use Relation::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, NotEqual};
    for (text, operand, relation, value) in [
        ("arg3 > 4096", "arg3", Greater, 4096),
        ("ret < 0", "ret", Less, 0),
        ("wall > 10ms", "wall", Greater, 10_000_000),
        ("arg1<=0x10", "arg1", LessOrEqual, 16),
        ("arg6>=-0x10", "arg6", GreaterOrEqual, -16),
        ("  ret==-1  ", "ret", Equal, -1),
        ("ret != +7", "ret", NotEqual, 7),
        ("arg2\t==\t0x7fffffffffffffff", "arg2", Equal, i64::MAX),
        ("arg2 == -9223372036854775808", "arg2", Equal, i64::MIN),
        ("cpu >= 3us", "cpu", GreaterOrEqual, 3_000),
        ("blocked>2s", "blocked", Greater, 2_000_000_000),
        ("blocked < -1ns", "blocked", Less, -1),
        ("run-delay != 0ns", "run-delay", NotEqual, 0),
        ("block-io > 1ns", "block-io", Greater, 1),
    ] {
        let expected = (operand.to_owned(), relation, value);
        assert_eq!(parsed(text), Ok(expected), "{text}");
    }
}

#[test]
fn what_is_no_condition_is_refused_with_what_is_allowed() {
    const OPERANDS: &str =
        "a condition compares arg1 to arg6, ret, wall, cpu, blocked, run-delay or block-io";
    const RELATIONS: &str = "a condition has one of <, <=, >, >=, == and !=";
    const ONE: &str = "a condition is one comparison, and this comes after it";
    const RANGE: &str = "numbers are from -9223372036854775808 to 9223372036854775807, times in ns";
    let number = |name: &str| {
        format!("{name} is compared with a whole number without a unit, decimal or 0x…")
    };
    let time =
        |name: &str| format!("{name} is compared with a time, a whole number with ns, us, ms or s");
    for (text, error) in [
        ("", format!("nothing: {OPERANDS}")),
        ("arg7 > 1", format!("\"arg7\": {OPERANDS}")),
        ("arg0 > 1", format!("\"arg0\": {OPERANDS}")),
        ("Arg1 > 1", format!("\"Arg1\": {OPERANDS}")),
        ("cycles > 1", format!("\"cycles\": {OPERANDS}")),
        ("4096 < arg3", format!("\"4096\": {OPERANDS}")),
        ("!ret", format!("\"!ret\": {OPERANDS}")),
        ("(ret < 0)", format!("\"(ret < 0)\": {OPERANDS}")),
        ("arg1", format!("nothing after arg1: {RELATIONS}")),
        ("arg1 = 1", format!("\"=\" after arg1: {RELATIONS}")),
        ("arg1 => 1", format!("\"=>\" after arg1: {RELATIONS}")),
        ("arg1 <> 1", format!("\"<>\" after arg1: {RELATIONS}")),
        ("arg1 & 1", format!("\"& 1\" after arg1: {RELATIONS}")),
        ("arg1 1", format!("\"1\" after arg1: {RELATIONS}")),
        ("arg1 >", format!("nothing: {}", number("arg1"))),
        ("arg1 > x", format!("\"x\": {}", number("arg1"))),
        ("arg1 > 1.5", format!("\"1.5\": {}", number("arg1"))),
        ("arg1 > 10ms", format!("\"10ms\": {}", number("arg1"))),
        ("arg1 > 0x", format!("\"0x\": {}", number("arg1"))),
        ("arg1 > --1", format!("\"--1\": {}", number("arg1"))),
        ("arg1 > (1)", format!("\"(1)\": {}", number("arg1"))),
        ("wall > 10", format!("\"10\": {}", time("wall"))),
        ("wall > 1.5ms", format!("\"1.5ms\": {}", time("wall"))),
        ("wall > 10m", format!("\"10m\": {}", time("wall"))),
        ("wall > 0x10ns", format!("\"0x10ns\": {}", time("wall"))),
        ("wall > ms", format!("\"ms\": {}", time("wall"))),
        ("arg1 > arg2", format!("\"arg2\": {}", number("arg1"))),
        (
            "arg1 > 9223372036854775808",
            format!("\"9223372036854775808\": {RANGE}"),
        ),
        (
            "ret == 0xffffffffffffffff",
            format!("\"0xffffffffffffffff\": {RANGE}"),
        ),
        ("wall > 10000000000s", format!("\"10000000000s\": {RANGE}")),
        ("arg3 > 4096 && ret < 0", format!("\"&& ret < 0\": {ONE}")),
        ("arg3 > 4096 or 1", format!("\"or 1\": {ONE}")),
        ("0 < arg1 < 5", format!("\"0\": {OPERANDS}")),
        ("arg1 > 0 < 5", format!("\"< 5\": {ONE}")),
        ("arg1 > 10 ms", format!("\"ms\": {ONE}")),
    ] {
        assert_eq!(parsed(text), Err(error), "{text}");
    }
}

#[test]
fn an_error_has_one_line_and_an_end() {
    let error = parsed(&"\n\u{1b}[31mx".repeat(100)).unwrap_err();
    assert!(
        error.len() < 400 && !error.contains(['\n', '\u{1b}']),
        "{error}"
    );
    for digits in [40, 400] {
        let text = format!("arg1 > {}", "9".repeat(digits));
        assert!(parsed(&text).unwrap_err().contains("numbers are from"));
    }
}

#[test]
fn a_time_is_shown_in_the_longest_unit_of_which_it_is_a_multiple() {
    for (text, shown) in [
        ("wall>10000us", "wall > 10ms"),
        ("wall>1500ms", "wall > 1500ms"),
        ("cpu<=60000ms", "cpu <= 60s"),
        ("cpu<1001ns", "cpu < 1001ns"),
        ("cpu==-2000ns", "cpu == -2us"),
        ("arg1 != 0x1000", "arg1 != 4096"),
    ] {
        let condition: Condition = text.parse().expect("a condition");
        assert_eq!(condition.to_string(), shown);
    }
    let zero: Condition = "cpu!=0ns".parse().expect("a condition");
    assert_eq!(zero.to_string(), "cpu != 0ns");
}

fn operands() -> impl Strategy<Value = Operand> {
    let items: Vec<_> = Item::all().map(Operand::Item).collect();
    let timers = Timer::ALL.map(Operand::Timer);
    prop::sample::select([items, timers.to_vec()].concat())
}

proptest! {
    #[test]
    fn what_is_shown_reads_as_the_same(
        operand in operands(),
        relation in prop::sample::select(Relation::ALL.to_vec()),
        value in any::<i64>(),
        shift in 0..64u32,
    ) {
        let condition = Condition { operand, relation, value: value >> shift };
        let shown = condition.to_string();
        prop_assert_eq!(shown.parse(), Ok(condition), "{}", shown);
        let packed = shown.replace(' ', "");
        prop_assert_eq!(packed.parse(), Ok(condition), "{}", packed);
    }

    #[test]
    fn any_text_is_a_condition_or_an_error_of_one_line(text in "[arget1-6walcpu<>=!0x. &m-]{0,24}|.{0,40}") {
        match parsed(&text) {
            Ok(_) => {
                let condition: Condition = text.parse().expect("it was one before");
                prop_assert_eq!(condition.to_string().parse(), Ok(condition));
            }
            Err(error) => prop_assert!(!error.contains(char::is_control), "{}", error),
        }
    }
}
