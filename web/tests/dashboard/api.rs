//! The API: its answers are as its description says.

use axum::Router;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use jsonschema::Validator;
use serde_json::{Value, json};
use throng::durable::{DurableClient, MemoryStore, TaskId};

use crate::stage::Stage;
use crate::support::{ACCESS, PREFIX, Reply, get, operated, post_form, post_json, send, until};

/// The API of a dashboard, and its description.
pub(crate) struct Api {
    app: Router,
    description: Value,
}

impl Api {
    pub(crate) fn of(client: &DurableClient) -> Self {
        let description = include_str!("../../api/v1.json");
        Self {
            app: operated(client),
            description: serde_json::from_str(description).expect("it is JSON"),
        }
    }

    /// Sends a GET request to a path of the description, with these values of its parameters. Checks the answer, and returns its data.
    pub(crate) async fn get(&self, template: &str, values: &[(&str, &str)], query: &str) -> Value {
        let reply = get(&self.app, &format!("{}{query}", path(template, values))).await;
        self.checked(template, "get", "200", &reply)
    }

    /// Sends a POST request. Checks the answer, and returns its data.
    pub(crate) async fn post(
        &self,
        template: &str,
        values: &[(&str, &str)],
        body: &Value,
    ) -> Value {
        let reply = post_json(&self.app, &path(template, values), body).await;
        let expected = match template {
            "/s/{store}/bulk" => "202",
            _ => "200",
        };
        self.checked(template, "post", expected, &reply)
    }

    /// Sends a POST request that is refused. Checks the answer, and returns its type.
    pub(crate) async fn refused(
        &self,
        template: &str,
        values: &[(&str, &str)],
        body: &Value,
    ) -> String {
        let reply = post_json(&self.app, &path(template, values), body).await;
        self.problem(&reply)
    }

    fn checked(&self, template: &str, method: &str, status: &str, reply: &Reply) -> Value {
        assert_eq!(reply.status.as_str(), status, "{template}: {}", reply.text);
        let response = &self.description["paths"][template][method]["responses"][status];
        let schema = &response["content"]["application/json"]["schema"];
        let mut answer = reply.json();
        self.validate(template, schema, &answer);
        answer["data"].take()
    }

    fn problem(&self, reply: &Reply) -> String {
        assert_eq!(reply.headers[CONTENT_TYPE], "application/problem+json");
        let problem = reply.json();
        let schema = json!({ "$ref": "#/components/schemas/Problem" });
        self.validate("problem", &schema, &problem);
        assert_eq!(problem["status"], reply.status.as_u16());
        problem["type"].as_str().unwrap().to_owned()
    }

    fn validate(&self, what: &str, schema: &Value, answer: &Value) {
        assert!(schema.is_object(), "{what} is not described");
        let mut components = self.description["components"].clone();
        close(&mut components);
        let root = json!({ "allOf": [schema], "components": components });
        let validator = Validator::new(&root).expect("the schema is valid");
        let errors: Vec<_> = validator
            .iter_errors(answer)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{what}: {errors:#?}\n{answer:#}");
    }
}

/// Refuses fields that the description lacks. Clients must accept them, since fields may be added.
fn close(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if fields.contains_key("properties") && !fields.contains_key("additionalProperties") {
                fields.insert("additionalProperties".into(), false.into());
            }
            fields.values_mut().for_each(close);
        }
        Value::Array(values) => values.iter_mut().for_each(close),
        _ => {}
    }
}

fn path(template: &str, values: &[(&str, &str)]) -> String {
    let mut path = format!("{PREFIX}/api/v1{}", template.replace("{store}", "mail"));
    for (name, value) in values {
        path = path.replace(&format!("{{{name}}}"), value);
    }
    assert!(!path.contains('{'), "{path}");
    path
}

/// The paths that need no parameter but a store.
const PLAIN: [&str; 8] = [
    "/stores",
    "/process",
    "/s/{store}/overview",
    "/s/{store}/queues",
    "/s/{store}/types",
    "/s/{store}/dead",
    "/s/{store}/workers",
    "/s/{store}/schedules",
];
const LISTS: [&str; 8] = [
    "next",
    "waiting",
    "delayed",
    "retrying",
    "running",
    "done",
    "cancelled",
    "dead",
];

#[tokio::test]
async fn answers_about_a_store_in_memory_are_as_described() {
    answers_are_as_described(&Stage::in_memory().await).await;
}

#[tokio::test]
async fn answers_about_a_file_are_as_described() {
    answers_are_as_described(&Stage::in_a_file().await).await;
}

pub(crate) async fn answers_are_as_described(stage: &Stage) {
    let api = Api::of(&stage.client);
    for template in PLAIN {
        api.get(template, &[], "").await;
    }
    for list in LISTS {
        let page = api
            .get("/s/{store}/tasks/{list}", &[("list", list)], "")
            .await;
        assert_ne!(page["tasks"], json!([]), "{list}");
    }
    for (state, id) in stage.tasks() {
        let id = id.to_string();
        let detail = api.get("/s/{store}/task/{id}", &[("id", &id)], "").await;
        assert_eq!(detail["task"]["status"], state);
        assert_eq!(detail["task"]["id"], id);
    }
    let id = stage.running.to_string();
    let running = api.get("/s/{store}/task/{id}", &[("id", &id)], "").await;
    let session = running["runner"]["session"].as_str().expect("it runs");
    let worker = api
        .get("/s/{store}/workers/{session}", &[("session", session)], "")
        .await;
    assert_eq!(worker["worker"]["session"], session);
    assert_eq!(worker["running"][0]["id"], id);
    let found = api.get("/s/{store}/find", &[], "?q=nightly").await;
    assert_eq!(found["schedule"], "nightly");
    let found = api
        .get("/s/{store}/find", &[], &format!("?q={}", stage.dead))
        .await;
    assert_eq!(found["task"], stage.dead.to_string());
}

#[tokio::test]
async fn answers_about_an_empty_store_are_as_described() {
    let api = Api::of(&DurableClient::open(MemoryStore::new()));
    for template in PLAIN {
        api.get(template, &[], "").await;
    }
    for list in LISTS {
        let page = api
            .get("/s/{store}/tasks/{list}", &[("list", list)], "")
            .await;
        assert_eq!(page["tasks"], json!([]), "{list}");
    }
}

#[tokio::test]
async fn each_list_has_the_time_at_which_it_was_read() {
    let app = operated(&DurableClient::open(MemoryStore::new()));
    for list in LISTS {
        let path = path("/s/{store}/tasks/{list}", &[("list", list)]);
        let answer = get(&app, &path).await.json();
        let now = answer["now_ms"].as_u64();
        assert!(now > Some(1_700_000_000_000), "{list}: {answer}");
    }
}

#[tokio::test]
async fn pages_of_a_list_follow_one_another() {
    let client = DurableClient::open(MemoryStore::new());
    let mails = (0..5).map(|_| crate::stage::mail(crate::stage::Act::Succeed));
    client.spawn_all(mails).await.unwrap();
    let app = operated(&client);
    let (mut seen, mut query) = (Vec::new(), String::from("?limit=2"));
    loop {
        let path = format!(
            "{}{query}",
            path("/s/{store}/tasks/{list}", &[("list", "waiting")])
        );
        let answer = get(&app, &path).await.json();
        let tasks = answer["data"]["tasks"].as_array().unwrap();
        seen.extend(
            tasks
                .iter()
                .map(|task| task["id"].as_str().unwrap().to_owned()),
        );
        assert!(tasks.len() <= 2 && answer["examined"].as_u64() <= Some(20));
        match answer["next"].as_str() {
            Some(next) => query = format!("?limit=2&after={next}"),
            None => break,
        }
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 5);
}

#[tokio::test]
async fn operations_answer_as_described() {
    let stage = Stage::in_memory().await;
    let api = Api::of(&stage.client);
    let change = "/s/{store}/task/{id}/{action}";
    let (waiting, dead) = (stage.waiting.to_string(), stage.dead.to_string());
    for (id, action, body, effect) in [
        (&waiting, "move", json!({ "to": "slow" }), "yes"),
        (&waiting, "move", json!({ "to": "slow" }), "already"),
        (&waiting, "cancel", json!({}), "yes"),
        (&stage.delayed.to_string(), "run", json!({}), "yes"),
        (&dead, "replay", json!({}), "yes"),
    ] {
        let answer = api
            .post(change, &[("id", id), ("action", action)], &body)
            .await;
        assert_eq!(answer, json!({ "effect": effect }), "{action}");
    }
    let absent = TaskId::new().to_string();
    for (id, action, body, problem) in [
        (&waiting, "cancel", json!({}), "not-in-state"),
        (&dead, "delete", json!({}), "not-in-state"),
        (&absent, "cancel", json!({}), "not-found"),
        (&dead, "explode", json!({}), "not-found"),
        (&waiting, "cancel", json!({ "to": "slow" }), "invalid"),
        (&waiting, "move", json!({ "to": "a b" }), "invalid"),
        (&waiting, "move", json!({ "queue": "slow" }), "invalid"),
    ] {
        assert_eq!(
            api.refused(change, &[("id", id), ("action", action)], &body)
                .await,
            problem,
            "{body}"
        );
    }
}

#[tokio::test]
async fn queues_types_and_schedules_are_paused_and_resumed() {
    let stage = Stage::in_memory().await;
    let api = Api::of(&stage.client);
    for (what, name) in [
        ("queues", "bulk"),
        ("types", "mail.send"),
        ("schedules", "nightly"),
    ] {
        for (operation, is_paused) in [("pause", true), ("resume", false)] {
            let template = format!("/s/{{store}}/{what}/{operation}");
            let answer = api.post(&template, &[], &json!({ "name": name })).await;
            assert_eq!(answer, json!({ "is_paused": is_paused }));
            let list = api.get(&format!("/s/{{store}}/{what}"), &[], "").await;
            let rows = list[what].as_array().unwrap().iter();
            let row = rows.clone().find(|row| row["name"] == name).unwrap();
            let found = [&row["is_paused"], &row["info"]["is_paused"]];
            assert!(found.contains(&&Value::from(is_paused)), "{row:#}");
        }
    }
    let fired = api
        .post(
            "/s/{store}/schedules/fire",
            &[],
            &json!({ "name": "nightly" }),
        )
        .await;
    let id = fired["task"].as_str().unwrap();
    let task = api.get("/s/{store}/task/{id}", &[("id", id)], "").await;
    assert_eq!(task["task"]["status"], "waiting");
    for operation in ["pause", "fire"] {
        let template = format!("/s/{{store}}/schedules/{operation}");
        let problem = api
            .refused(&template, &[], &json!({ "name": "other" }))
            .await;
        assert_eq!(problem, "not-found");
    }
}

#[tokio::test]
async fn bulk_changes_answer_as_described() {
    let stage = Stage::in_memory().await;
    let api = Api::of(&stage.client);
    let page = get(&api.app, &path("/s/{store}/dead", &[])).await.json();
    let order = json!({ "action": "replay", "list": "dead", "until_ms": page["now_ms"] });
    let job = api.post("/s/{store}/bulk", &[], &order).await;
    let number = job["number"].to_string();
    let template = "/s/{store}/bulk/{number}";
    until("the dead letter is replayed", async || {
        let job = api.get(template, &[("number", &number)], "").await;
        job["progress"]["state"] == "finished" && job["progress"]["changed"] == 1
    })
    .await;
    let stop = path("/s/{store}/bulk/{number}/stop", &[("number", &number)]);
    let stopped = post_json(&api.app, &stop, &json!({})).await;
    api.checked("/s/{store}/bulk/{number}/stop", "post", "200", &stopped);
    let unbounded = json!({ "action": "replay", "list": "dead" });
    assert_eq!(
        api.refused("/s/{store}/bulk", &[], &unbounded).await,
        "invalid"
    );
}

#[tokio::test]
async fn the_description_is_served_and_has_all_routes() {
    let stage = Stage::in_memory().await;
    let api = Api::of(&stage.client);
    let served = get(&api.app, &format!("{PREFIX}/api/v1")).await;
    assert_eq!(served.json(), api.description);
    let id = stage.waiting.to_string();
    let values = [
        ("list", "waiting"),
        ("id", &id),
        ("number", "7"),
        ("session", "7"),
        ("action", "cancel"),
    ];
    for (template, operations) in api.description["paths"].as_object().unwrap() {
        for method in operations.as_object().unwrap().keys() {
            let request = axum::http::Request::builder()
                .method(method.to_uppercase().as_str())
                .uri(path(template, &values))
                .header(ACCESS, "none");
            let hidden = send(&api.app, request, axum::body::Body::empty()).await;
            assert_eq!(
                (hidden.status, &*hidden.text),
                (StatusCode::NOT_FOUND, "not found")
            );
            let reply = match &**method {
                "get" => get(&api.app, &path(template, &values)).await,
                _ => post_form(&api.app, &path(template, &values), &[]).await,
            };
            assert!(
                !reply.text.contains("no such page"),
                "{method} {template}: {}",
                reply.text
            );
            assert_ne!(
                reply.status,
                StatusCode::METHOD_NOT_ALLOWED,
                "{method} {template}"
            );
        }
    }
}

#[tokio::test]
async fn the_api_accepts_json_only() {
    let stage = Stage::in_memory().await;
    let api = Api::of(&stage.client);
    let id = stage.waiting.to_string();
    let cancel = path(
        "/s/{store}/task/{id}/{action}",
        &[("id", &id), ("action", "cancel")],
    );
    let reply = post_form(&api.app, &cancel, &[]).await;
    assert_eq!(api.problem(&reply), "invalid");
    assert!(reply.text.contains("application/json"), "{}", reply.text);
}
