//! The OpenAPI 3.1 document, made from the table of endpoints.
//!
//! Owns: how an endpoint is written down. The schemas are in `schemas.json` and the parameters in
//! `params.json`, as they are read. Never a path that is not in the table.

use axum::response::IntoResponse;
use serde_json::{Map, Value, json};

use crate::answer::{self, Answer};
use crate::endpoint::{ENDPOINTS, Endpoint};

const SCHEMAS: &str = include_str!("schemas.json");
const PARAMS: &str = include_str!("params.json");

/// The endpoints that take an `Idempotency-Key`.
const KEYED: [&str; 5] =
    ["start_run", "send_signal", "fork_run", "begin_operation", "trigger_schedule"];

/// `GET /openapi.json`.
pub(crate) async fn show() -> Answer {
    Ok(answer::ok(&document())?.into_response())
}

/// The document that describes the API.
///
/// ```
/// let document = onward_server::openapi();
/// assert_eq!(document["openapi"], "3.1.0");
/// assert!(document["paths"]["/api/v1/runs"]["get"].is_object());
/// ```
pub fn document() -> Value {
    let params: Value = serde_json::from_str(PARAMS).unwrap_or_default();
    let mut paths = Map::new();
    for endpoint in ENDPOINTS {
        let path = paths.entry(endpoint.path).or_insert_with(|| json!({}));
        path[endpoint.method] = described(endpoint, &params);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Onward",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Runs of durable workflows: look at them, start them, steer them.",
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "paths": paths,
        "security": [{ "bearer": [] }, { "cookie": [] }],
        "components": {
            "securitySchemes": {
                "bearer": { "type": "http", "scheme": "bearer" },
                "cookie": { "type": "apiKey", "in": "cookie", "name": crate::guard::COOKIE },
            },
            "schemas": serde_json::from_str::<Value>(SCHEMAS).unwrap_or_default(),
        },
    })
}

fn described(endpoint: &Endpoint, params: &Value) -> Value {
    let mut parameters: Vec<Value> = names(endpoint.path).map(in_path).collect();
    parameters.extend(endpoint.params.iter().map(|name| in_query(name, &params[name])));
    if KEYED.contains(&endpoint.name) {
        parameters.push(json!({
            "name": "Idempotency-Key",
            "in": "header",
            "description": "Names the request: sent again with the same key, it happens once.",
            "schema": { "type": "string", "minLength": 1, "maxLength": 255 },
        }));
    }
    if endpoint.name == "start_run" {
        parameters.push(json!({
            "name": "traceparent",
            "in": "header",
            "description": "The trace that the run is in (W3C); a malformed one is passed over.",
            "schema": { "type": "string" },
        }));
    }
    let mut described = json!({
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "parameters": parameters,
        "responses": responses(endpoint),
    });
    match endpoint.role {
        Some(role) => described["x-onward-role"] = json!(role.as_str()),
        None => described["security"] = json!([]),
    }
    if let Some(schema) = endpoint.takes {
        let content = json!({ "application/json": { "schema": reference(schema) } });
        described["requestBody"] = json!({ "required": true, "content": content });
    }
    described
}

/// The names in braces of a path.
pub(crate) fn names(path: &str) -> impl Iterator<Item = &str> {
    path.split('{').skip(1).filter_map(|rest| rest.split('}').next())
}

fn in_path(name: &str) -> Value {
    let schema = match name {
        "id" => json!({ "type": "string", "format": "uuid" }),
        "seq" => json!({ "type": "integer", "minimum": 0 }),
        _ => json!({ "type": "string", "minLength": 1 }),
    };
    json!({ "name": name, "in": "path", "required": true, "schema": schema })
}

fn in_query(name: &str, known: &Value) -> Value {
    let mut parameter = known.clone();
    if !parameter.is_object() {
        parameter = json!({ "schema": { "type": "string" } });
    }
    parameter["name"] = json!(name);
    parameter["in"] = json!("query");
    parameter
}

fn responses(endpoint: &Endpoint) -> Value {
    let mut responses = Map::new();
    for (status, schema) in endpoint.gives {
        let mut response = json!({ "description": endpoint.summary });
        if !schema.is_empty() {
            response["content"] = json!({ endpoint.kind: { "schema": reference(schema) } });
        }
        responses.insert(status.to_string(), response);
    }
    let problem = json!({ "application/problem+json": { "schema": reference("Problem") } });
    responses.insert(
        "default".to_owned(),
        json!({ "description": "It was refused; the code says why.", "content": problem }),
    );
    Value::Object(responses)
}

fn reference(schema: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{schema}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_schema_and_parameter_that_is_named_is_there() {
        let document = document();
        let schemas = document["components"]["schemas"].as_object().unwrap();
        let text = document.to_string();
        for part in text.split("#/components/schemas/").skip(1) {
            let name = part.split('"').next().unwrap();
            assert!(schemas.contains_key(name), "there is no schema {name:?}");
        }
        let params: Value = serde_json::from_str(PARAMS).unwrap();
        for name in ENDPOINTS.iter().flat_map(|endpoint| endpoint.params) {
            assert!(params[name].is_object(), "there is no parameter {name:?}");
        }
    }
}
