//! The JSON Schema of profiles, `docs/reference/profile.schema.json`, and the part of JSON Schema
//! that it uses.

use crate::place::workspace;
use serde_json::{Map, Value};
use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

/// The path of the schema's file.
pub fn file() -> PathBuf {
    workspace().join("docs/reference/profile.schema.json")
}

/// The schema of profiles.
///
/// # Panics
/// If the file cannot be read.
pub fn of_profiles() -> &'static Value {
    static SCHEMA: OnceLock<Value> = OnceLock::new();
    SCHEMA.get_or_init(|| {
        let text = fs::read_to_string(file()).expect("the schema");
        serde_json::from_str(&text).expect("JSON")
    })
}

/// Checks a profile against the schema.
///
/// # Errors
/// The place of the first violation, and the violated keyword.
pub fn check(profile: &Value) -> Result<(), String> {
    let root = of_profiles();
    violation(root, root, profile).map_or(Ok(()), Err)
}

/// The place and keyword of the first violation of `schema` by `value`; `None` if it is valid.
/// `root` has the definitions.
fn violation(root: &Value, schema: &Value, value: &Value) -> Option<String> {
    if let Some(Value::String(name)) = schema.get("$ref") {
        let name = name.strip_prefix("#/definitions/").expect("a definition");
        return violation(root, &root["definitions"][name], value);
    }
    let rules = schema.as_object().expect("a schema");
    rules.iter().find_map(|(keyword, rule)| {
        let is_valid = match (keyword.as_str(), value) {
            ("description" | "title" | "$schema" | "definitions", _) => true,
            ("type", _) => types(rule).any(|name| is_a(value, name)),
            ("const", _) => rule == value,
            ("enum", _) => rule.as_array().is_some_and(|all| all.contains(value)),
            ("minimum", Value::Number(number)) => number.as_f64() >= rule.as_f64(),
            ("minItems", Value::Array(items)) => items.len() as u64 >= rule.as_u64()?,
            ("maxItems", Value::Array(items)) => items.len() as u64 <= rule.as_u64()?,
            ("required", Value::Object(fields)) => {
                types(rule).all(|name| fields.contains_key(name))
            }
            ("anyOf", _) => {
                let mut all = rule.as_array().into_iter().flatten();
                all.any(|rule| violation(root, rule, value).is_none())
            }
            ("items", Value::Array(items)) => {
                let found = items.iter().enumerate().find_map(|(index, item)| {
                    Some(format!("[{index}]{}", violation(root, rule, item)?))
                });
                return found;
            }
            ("properties", Value::Object(fields)) => {
                return fields.iter().find_map(|(name, field)| {
                    Some(format!(
                        ".{name}{}",
                        violation(root, rule.get(name)?, field)?
                    ))
                });
            }
            ("additionalProperties", Value::Object(fields)) => {
                return others(rules, fields).find_map(|(name, field)| match rule {
                    Value::Bool(true) => None,
                    Value::Bool(false) => Some(format!(".{name}: additionalProperties")),
                    rule => Some(format!(".{name}{}", violation(root, rule, field)?)),
                });
            }
            ("minimum" | "minItems" | "maxItems" | "required", _) => true,
            ("items" | "properties" | "additionalProperties", _) => true,
            (other, _) => panic!("the schema has the keyword {other}, which is not checked"),
        };
        (!is_valid).then(|| format!(": {keyword}"))
    })
}

/// The fields that are not named in `properties` of the rules.
fn others<'f>(
    rules: &'f Map<String, Value>,
    fields: &'f Map<String, Value>,
) -> impl Iterator<Item = (&'f String, &'f Value)> {
    let own = rules.get("properties");
    fields
        .iter()
        .filter(move |(name, _)| own.is_none_or(|own| own.get(name.as_str()).is_none()))
}

/// A string, or the strings of a list.
fn types(rule: &Value) -> impl Iterator<Item = &str> {
    let list = rule.as_array().map(Vec::as_slice);
    let all = list.unwrap_or(std::slice::from_ref(rule));
    all.iter().filter_map(Value::as_str)
}

/// True if the value has the type with this name in JSON Schema.
fn is_a(value: &Value, name: &str) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "number" => value.is_number(),
        // A sum beyond 64 bits is read as a float.
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        other => panic!("the schema has the type {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn violations_are_found_and_named() {
        let root = json!({
            "type": "object",
            "properties": {
                "n": {"$ref": "#/definitions/n"},
                "list": {"items": {"type": "string"}},
                "any": {"anyOf": [{"type": "string"}, {"const": 7}]}
            },
            "required": ["n"],
            "additionalProperties": false,
            "definitions": {"n": {"type": ["integer", "null"], "minimum": 0}}
        });
        let found = |value: Value| violation(&root, &root, &value);
        for valid in [
            json!({"n": 1}),
            json!({"n": null, "list": ["a"]}),
            json!({"n": 1, "any": "a"}),
            json!({"n": 1, "any": 7}),
        ] {
            assert_eq!(found(valid), None);
        }
        for (value, place) in [
            (json!([]), ": type"),
            (json!({}), ": required"),
            (json!({"n": -1}), ".n: minimum"),
            (json!({"n": 0.5}), ".n: type"),
            (json!({"n": 1, "list": ["a", 1]}), ".list[1]: type"),
            (json!({"n": 1, "any": 8}), ".any: anyOf"),
            (json!({"n": 1, "other": 1}), ".other: additionalProperties"),
        ] {
            assert_eq!(found(value).as_deref(), Some(place));
        }
    }
}
