//! Mutations of a JSON text whose results are mostly JSON.

use std::mem::discriminant;

use serde_json::{Number, Value};

use super::bytes::bytes;
use crate::Random;

/// Changes, removes or duplicates a value, or copies it to another place. Occasionally changes
/// bytes, or inserts a value of another type, which most readers reject at once.
pub fn json(random: &mut Random, corpus: &[Vec<u8>], input: &mut Vec<u8>) {
    let parsed = serde_json::from_slice::<Value>(input);
    let (Ok(mut value), true) = (parsed, random.below(64) != 0) else {
        return bytes(random, corpus, input);
    };
    let count = count(&value);
    let mut any = |value: &mut Value| at(value, &mut random.below(count)).map(|v| v.clone());
    let donors: Vec<Value> = (0..4).filter_map(|_| any(&mut value)).collect();
    let mut place = random.below(count);
    let Some(target) = at(&mut value, &mut place) else {
        return;
    };
    let is_like = |donor: &&Value| discriminant(*donor) == discriminant(&*target);
    let like = donors.iter().find(is_like).cloned();
    match random.below(32) {
        0 => replace(random, target, donors.into_iter().next()),
        _ => change(random, target, like),
    }
    if let Ok(text) = serde_json::to_vec(&value) {
        *input = text;
    }
}

/// Replaces a value by one of any type, or removes a field.
fn replace(random: &mut Random, target: &mut Value, donor: Option<Value>) {
    match (random.below(4), &mut *target) {
        (0 | 1, Value::Object(fields)) => {
            let keys: Vec<String> = fields.keys().cloned().collect();
            if let Some(key) = random.pick(&keys) {
                fields.remove(key);
            }
        }
        (2, Value::Object(fields)) => {
            fields.insert("more".to_owned(), donor.unwrap_or(Value::Null));
        }
        (0, Value::Number(_)) => {
            let float = f64::from_bits(random.word());
            *target = Number::from_f64(float).map_or(Value::Null, Value::Number);
        }
        (1, Value::Number(_)) => *target = Value::from(random.interesting(64) as i64),
        _ => *target = donor.unwrap_or(Value::Null),
    }
}

/// Changes a value without changing its type. `like` is another value of that type.
fn change(random: &mut Random, target: &mut Value, like: Option<Value>) {
    let number = match random.below(4) {
        0 => random.interesting(64),
        _ => random.below(8) as u64,
    };
    match (random.below(8), &mut *target) {
        (0 | 1, _) => *target = like.unwrap_or_else(|| target.clone()),
        (2 | 3, Value::Array(items)) if !items.is_empty() => {
            items.remove(random.below(items.len()));
        }
        (4 | 5, Value::Array(items)) if !items.is_empty() => {
            items.push(items[random.below(items.len())].clone());
        }
        (2, Value::Array(items)) => items.clear(),
        (_, Value::Array(items)) => items.reverse(),
        (_, Value::String(text)) => match random.below(4) {
            0 => text.clear(),
            1 => text.push_str("\u{1b}[31m\u{0}\n\u{202e}"),
            2 => *text = text.repeat(3),
            _ => text.push('+'),
        },
        (_, Value::Bool(flag)) => *flag = !*flag,
        (2, Value::Number(old)) => {
            let old = old.as_u64().unwrap_or(0);
            *target = Value::from(old.wrapping_add(random.interesting(64)));
        }
        (_, Value::Number(_)) => *target = Value::from(number),
        (_, Value::Null) => *target = Value::from(number),
        (_, Value::Object(_)) => {}
    }
}

/// The number of values in a value, including itself.
fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(fields) => fields.values().map(count).sum(),
        _ => 0,
    }
}

/// The value with number `index` in a value.
fn at<'v>(value: &'v mut Value, index: &mut usize) -> Option<&'v mut Value> {
    if *index == 0 {
        return Some(value);
    }
    *index -= 1;
    match value {
        Value::Array(items) => items.iter_mut().find_map(|item| at(item, index)),
        Value::Object(fields) => fields.values_mut().find_map(|item| at(item, index)),
        _ => None,
    }
}
