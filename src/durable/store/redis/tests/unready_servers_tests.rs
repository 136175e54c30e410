//! Servers that are reachable but not ready: requests wait, or fail with a specific cause, and everything continues as soon as
//! the server is ready.

use redis::aio::MultiplexedConnection;

use super::*;

const PATIENT: Duration = Duration::from_secs(15);

/// Opens a store with long timeouts.
async fn open_patient(url: &str) -> RedisStore {
    let mut builder = RedisStore::builder(url);
    builder.answer_timeout(PATIENT);
    builder.open().await.unwrap()
}

/// Opens a connection on which an answer may take long.
async fn connect(server: &Server) -> MultiplexedConnection {
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
    let client = redis::Client::open(server.url()).unwrap();
    let connection = client.get_multiplexed_async_connection_with_config(&config);
    connection.await.unwrap()
}

#[tokio::test]
async fn a_request_waits_while_the_server_loads_its_data() {
    needs_redis!();
    let mut server = Server::start();
    let url = format!("redis://127.0.0.1:{}/", server.port());
    let patient = Worker::new(open_patient(&url).await).await;
    let hurried = Worker::new(open_hurried(&url).await).await;
    // While the server loads, it answers after every two megabytes.
    server.ask(&["CONFIG", "SET", "rdbcompression", "no"]);
    for number in 0..800 {
        server.ask(&["SETRANGE", &format!("other:{number}"), "20000", "end"]);
    }
    patient.enqueue((0..10).map(task)).await;
    server.ask(&["SAVE"]);
    server.kill();
    // For each key, in microseconds.
    server.push_arguments(&["--key-load-delay", "2500"]);
    server.spawn();
    let request = hurried.new_enqueue([task(10)]);
    let failure = loop {
        let answer = hurried.store.enqueue(Arc::clone(&request)).await;
        let failure = answer.expect_err("it loads its data");
        // The first request was sent to the server that has exited.
        if failure.effect == Effect::None {
            break failure;
        }
    };
    assert_eq!(failure.cause, Cause::Unavailable, "{failure}");
    assert_eq!(patient.claim(10).await.tasks.len(), 10);
    settled(|| hurried.store.enqueue(Arc::clone(&request)))
        .await
        .unwrap();
    assert_eq!(patient.store.counts().await.unwrap().stored, 11);
}

#[tokio::test]
async fn a_request_waits_while_the_server_runs_a_long_script() {
    needs_redis!();
    let server = Server::start();
    let patient = Worker::new(open_patient(&server.url()).await).await;
    let hurried = Worker::new(open_hurried(&server.url()).await).await;
    server.ask(&["CONFIG", "SET", "lua-time-limit", "20"]);
    let mut connection = connect(&server).await;
    let endless = tokio::spawn(async move {
        let mut command = redis::cmd("EVAL");
        command.arg("while true do end").arg(0);
        command.query_async::<()>(&mut connection).await
    });
    let request = hurried.new_enqueue([task(1)]);
    let is_busy = async {
        while !matches!(
            hurried.store.enqueue(Arc::clone(&request)).await,
            Err(failure) if failure.cause == Cause::Busy && failure.effect == Effect::None
        ) {}
    };
    timeout(DEADLINE, is_busy).await.unwrap();
    let waits = patient.enqueue([task(2)]);
    let (killed, ()) = tokio::join!(kill_script(&server), waits);
    assert!(killed.is_ok());
    endless.await.unwrap().expect_err("it was killed");
    settled(|| hurried.store.enqueue(Arc::clone(&request)))
        .await
        .unwrap();
    assert_eq!(hurried.claim(9).await.tasks.len(), 2);
}

/// Ends the script that the server runs.
async fn kill_script(server: &Server) -> Result<(), redis::RedisError> {
    let mut connection = connect(server).await;
    let mut command = redis::cmd("SCRIPT");
    command.arg("KILL").query_async(&mut connection).await
}

#[tokio::test]
async fn a_connection_to_a_replica_without_a_primary_is_closed() {
    needs_redis!();
    let server = Server::start();
    let hurried = Worker::new(open_hurried(&server.url()).await).await;
    server.ask(&["CONFIG", "SET", "replica-serve-stale-data", "no"]);
    server.ask(&["REPLICAOF", "127.0.0.1", "1"]);
    let request = hurried.new_enqueue([task(1)]);
    let answer = hurried.store.enqueue(Arc::clone(&request)).await;
    let failure = answer.expect_err("it is no primary");
    assert_eq!(failure.effect, Effect::None, "{failure}");
    assert!(
        matches!(failure.cause, Cause::Unavailable | Cause::ReadOnly),
        "{failure}"
    );
    server.ask(&["REPLICAOF", "NO", "ONE"]);
    settled(|| hurried.store.enqueue(Arc::clone(&request)))
        .await
        .unwrap();
    assert_eq!(hurried.claim(9).await.tasks.len(), 1);
}

/// A folder is in the place of the server's file, and the server is configured to refuse writes then.
#[tokio::test]
async fn a_request_waits_while_the_server_cannot_write_to_its_disk() {
    needs_redis!();
    let server = Server::start();
    let patient = Worker::new(open_patient(&server.url()).await).await;
    let hurried = Worker::new(open_hurried(&server.url()).await).await;
    let file = server.folder().join("dump.rdb");
    std::fs::create_dir_all(file.join("in-the-way")).unwrap();
    server.ask(&["CONFIG", "SET", "save", "3600 1"]);
    save(&server, "err").await;
    let request = hurried.new_enqueue([task(1)]);
    let answer = hurried.store.enqueue(Arc::clone(&request)).await;
    assert_fails(answer, &Cause::Unavailable, Effect::None);
    std::fs::remove_dir_all(file).unwrap();
    let waits = patient.enqueue([task(2)]);
    tokio::join!(save(&server, "ok"), waits);
    settled(|| hurried.store.enqueue(Arc::clone(&request)))
        .await
        .unwrap();
    assert_eq!(hurried.claim(9).await.tasks.len(), 2);
}

/// Makes the server write its data to the disk until that has this result.
async fn save(server: &Server, end: &str) {
    let wanted = format!("rdb_last_bgsave_status:{end}\r");
    let mut connection = connect(server).await;
    let saved = async {
        loop {
            let mut info = redis::cmd("INFO");
            let info = info.arg("persistence").query_async(&mut connection);
            let info: String = info.await.unwrap();
            if info.contains("rdb_bgsave_in_progress:0") {
                if info.contains(&wanted) {
                    return;
                }
                let save = redis::cmd("BGSAVE");
                save.query_async::<()>(&mut connection).await.unwrap();
            }
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(DEADLINE, saved).await.unwrap();
}

/// Missing keys may already be on the other node, so the node cannot run the script.
#[tokio::test]
async fn a_request_waits_while_the_slot_moves() {
    needs_redis!();
    let settings = [
        "--cluster-enabled",
        "yes",
        "--cluster-require-full-coverage",
        "no",
    ];
    let (server, target) = (Server::with(&settings), Server::with(&settings));
    let redis::Value::Int(slot) = server.ask(&["CLUSTER", "KEYSLOT", "throng:{default:0}:meta"])
    else {
        panic!("a slot is a number");
    };
    let slot = slot.to_string();
    server.ask(&["CLUSTER", "ADDSLOTS", &slot]);
    server.ask(&["CLUSTER", "MEET", "127.0.0.1", &target.port().to_string()]);
    let patient = Worker::new(open_patient(&server.url()).await).await;
    patient.enqueue([task(1)]).await;
    let hurried = Worker::new(open_hurried(&server.url()).await).await;
    let redis::Value::BulkString(node) = target.ask(&["CLUSTER", "MYID"]) else {
        panic!("an id is a text");
    };
    let node = String::from_utf8(node).unwrap();
    let begun = async {
        // The two nodes may not have met yet.
        while server
            .try_ask(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &node])
            .is_none()
        {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(DEADLINE, begun).await.unwrap();
    let request = hurried.new_turn(Vec::new(), 9);
    let answer = hurried.store.turn(Arc::clone(&request)).await;
    assert_fails(answer, &Cause::Unavailable, Effect::None);
    let end = async {
        sleep(SOON).await;
        server.ask(&["CLUSTER", "SETSLOT", &slot, "STABLE"]);
    };
    let ((), claim) = tokio::join!(end, patient.claim(9));
    assert_eq!(claim.tasks[0].id, id(1));
    let turned = settled(|| hurried.store.turn(Arc::clone(&request))).await;
    assert_eq!(turned.unwrap().claim, None);
}
