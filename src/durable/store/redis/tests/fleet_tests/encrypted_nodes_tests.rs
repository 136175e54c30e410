//! A cluster whose nodes accept encrypted connections only.

use super::super::tls_tests::{arguments, needs_tls, trusted_settings};
use super::*;

/// The nodes that the cluster names are reached with the user, and with the encryption, of the URL.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_nodes_are_reached_with_the_user_and_the_encryption_of_the_url() {
    needs_tls!();
    let test = "all_nodes_are_reached_with_the_user_and_the_encryption_of_the_url";
    let Some(mut settings) = trusted_settings(module_path!(), test) else {
        return;
    };
    settings.extend(["--tls-cluster", "yes"].map(str::to_owned));
    let cluster = Cluster::start_with(&arguments(&settings));
    for node in 0..PRIMARIES {
        let rules = ["reset", "on", ">p@ss", "~*", "&*", "+@all"];
        let user = [&["ACL", "SETUSER", "fleet"], &rules[..]].concat();
        cluster.node(node).ask(&user);
    }
    let url = format!("rediss://fleet:p%40ss@127.0.0.1:{}", cluster.node(0).port());
    let mut builder = RedisStore::cluster([&*url]);
    let store = builder.partitions(PARTITIONS).open().await.unwrap();
    let client = DurableClient::open(store);
    let executor = DurableExecutor::builder::<Runs>(client.clone())
        .register::<Job>()
        .start(Arc::default())
        .await
        .unwrap();
    for number in 0..20 {
        let handle = client.spawn(Job(number)).await.unwrap();
        assert_eq!(handle.await.unwrap(), number + 1);
    }
    for node in 0..PRIMARIES {
        assert!(!partitions_of(&cluster, node).is_empty());
        let clients = text(cluster.node(node).ask(&["CLIENT", "LIST"]));
        let own = clients.lines().filter(|it| it.contains("user=fleet"));
        assert!(own.count() >= 2, "{clients}");
    }
    executor.shutdown(Duration::from_secs(5)).await;
}
