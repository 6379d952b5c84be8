//! Changes of a JSON text that leave it one, mostly.

use serde_json::{Number, Value};

use super::bytes::bytes;
use crate::Random;

/// Changes a value, takes one away, doubles one, or puts one in another's place; now and then, changes bytes.
pub fn json(random: &mut Random, corpus: &[Vec<u8>], input: &mut Vec<u8>) {
    let parsed = serde_json::from_slice::<Value>(input);
    let (Ok(mut value), true) = (parsed, random.below(16) != 0) else {
        return bytes(random, corpus, input);
    };
    let count = count(&value);
    let donor = at(&mut value, &mut random.below(count)).map(|v| v.clone());
    let mut place = random.below(count);
    let Some(target) = at(&mut value, &mut place) else {
        return;
    };
    change(random, target, donor.unwrap_or(Value::Null));
    if let Ok(text) = serde_json::to_vec(&value) {
        *input = text;
    }
}

fn change(random: &mut Random, target: &mut Value, donor: Value) {
    let number = random.interesting(64);
    match (random.below(4), &mut *target) {
        (0, _) => *target = donor,
        (1, Value::Array(items)) if !items.is_empty() => {
            items.remove(random.below(items.len()));
        }
        (2, Value::Array(items)) if !items.is_empty() => {
            items.push(items[random.below(items.len())].clone());
        }
        (1, Value::Object(fields)) => {
            let keys: Vec<String> = fields.keys().cloned().collect();
            if let Some(key) = random.pick(&keys) {
                fields.remove(key);
            }
        }
        (_, Value::String(text)) => match random.below(4) {
            0 => text.clear(),
            1 => text.push_str("\u{1b}[31m\u{0}\n\u{202e}"),
            2 => *text = text.repeat(3),
            _ => text.push('+'),
        },
        (_, Value::Bool(flag)) => *flag = !*flag,
        (1, Value::Number(_)) => *target = Value::from(number as i64),
        (2, Value::Number(_)) => {
            let float = f64::from_bits(random.word());
            *target = Number::from_f64(float).map_or(Value::Null, Value::Number);
        }
        (_, Value::Number(_) | Value::Null) => *target = Value::from(number),
        (_, Value::Array(items)) => items.reverse(),
        (_, Value::Object(fields)) => {
            fields.insert("more".to_owned(), donor);
        }
    }
}

/// Values in it, itself included.
fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(fields) => fields.values().map(count).sum(),
        _ => 0,
    }
}

/// Value number `index` in it.
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
