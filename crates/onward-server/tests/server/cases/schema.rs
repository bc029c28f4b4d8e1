//! Holds answers against the OpenAPI document: the parts of JSON Schema that ours has.

use serde_json::Value;

use super::stage::Reply;

/// Panics when the document does not describe this answer.
pub(crate) fn check(document: &Value, method: &str, path: &str, reply: &Reply) {
    let path = path.split('?').next().unwrap();
    let Some(endpoint) = find(document, path).map(|found| &found[method.to_lowercase()]) else {
        return;
    };
    if !endpoint.is_object() {
        return;
    }
    let status = reply.status.to_string();
    let responses = &endpoint["responses"];
    let response = responses.get(&status).unwrap_or(&responses["default"]);
    let Some(content) = response["content"].as_object() else {
        assert!(reply.text.is_empty(), "{method} {path} {status}: {}", reply.text);
        return;
    };
    let kind = reply.header("content-type").unwrap_or_default().split(';').next().unwrap();
    let described = content.get(kind);
    let schema = described.unwrap_or_else(|| panic!("{method} {path} {status} is {kind:?}"));
    if kind.ends_with("json") {
        let mut faults = Vec::new();
        look(document, &schema["schema"], &reply.json(), "", &mut faults);
        assert!(faults.is_empty(), "{method} {path} {status}: {faults:#?}\n{}", reply.text);
    }
}

/// The path of the document that this one is; one without names comes first.
fn find<'a>(document: &'a Value, path: &str) -> Option<&'a Value> {
    let paths = document["paths"].as_object().unwrap();
    paths.get(path).or_else(|| {
        let found = paths.iter().find(|(known, _)| {
            let (known, path): (Vec<_>, Vec<_>) =
                (known.split('/').collect(), path.split('/').collect());
            let fits = |(known, part): (&&str, &&str)| known.starts_with('{') || known == part;
            known.len() == path.len() && known.iter().zip(&path).all(fits)
        });
        found.map(|(_, found)| found)
    })
}

fn look(document: &Value, schema: &Value, value: &Value, at: &str, faults: &mut Vec<String>) {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = reference.rsplit('/').next().unwrap();
        return look(document, &document["components"]["schemas"][name], value, at, faults);
    }
    if let Some(kinds) = schema["oneOf"].as_array() {
        let fits = kinds.iter().filter(|kind| {
            let mut own = Vec::new();
            look(document, kind, value, at, &mut own);
            own.is_empty()
        });
        if fits.count() != 1 {
            faults.push(format!("{at}: {value} fits not one of {kinds:?}"));
        }
        return;
    }
    if !is_of(&schema["type"], value) {
        faults.push(format!("{at}: {value} is not {}", schema["type"]));
        return;
    }
    if schema["enum"].as_array().is_some_and(|known| !known.contains(value)) {
        faults.push(format!("{at}: {value} is not one of {}", schema["enum"]));
    }
    if let Some(minimum) = schema["minimum"].as_i64()
        && value.as_i64().is_some_and(|number| number < minimum)
    {
        faults.push(format!("{at}: {value} is less than {minimum}"));
    }
    inside(document, schema, value, at, faults);
}

fn inside(document: &Value, schema: &Value, value: &Value, at: &str, faults: &mut Vec<String>) {
    for (number, item) in value.as_array().into_iter().flatten().enumerate() {
        if schema["items"].is_object() {
            look(document, &schema["items"], item, &format!("{at}/{number}"), faults);
        }
    }
    let Some(fields) = value.as_object() else { return };
    for name in schema["required"].as_array().into_iter().flatten() {
        if !fields.contains_key(name.as_str().unwrap()) {
            faults.push(format!("{at}: lacks {name}"));
        }
    }
    for (name, field) in fields {
        let at = format!("{at}/{name}");
        match (&schema["properties"][name], &schema["additionalProperties"]) {
            (known, _) if known.is_object() => look(document, known, field, &at, faults),
            (_, others) if others.is_object() => look(document, others, field, &at, faults),
            // What has properties at all names every one that is answered.
            (_, Value::Bool(true)) => {}
            _ if schema["properties"].is_object() && !at.contains("waits_for") => {
                faults.push(format!("{at} is not in the document"));
            }
            _ => {}
        }
    }
}

fn is_of(kind: &Value, value: &Value) -> bool {
    let one = |kind: &Value| match kind.as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("boolean") => value.is_boolean(),
        Some("null") => value.is_null(),
        _ => false,
    };
    match kind {
        Value::Null => true,
        Value::Array(kinds) => kinds.iter().any(one),
        kind => one(kind),
    }
}

#[test]
fn what_does_not_fit_the_document_is_found() {
    let schema = serde_json::json!({
        "type": "object",
        "properties": { "a": { "type": ["integer", "null"], "minimum": 0 } },
        "required": ["a"],
    });
    let faults = |value: Value| {
        let mut faults = Vec::new();
        look(&Value::Null, &schema, &value, "", &mut faults);
        faults.len()
    };
    assert_eq!(faults(serde_json::json!({ "a": 1 })), 0);
    assert_eq!(faults(serde_json::json!({ "a": null })), 0);
    for value in [r#"{}"#, r#"{"a":-1}"#, r#"{"a":"1"}"#, r#"{"a":1,"b":2}"#, "[]"] {
        assert_eq!(faults(serde_json::from_str(value).unwrap()), 1, "{value}");
    }
}
