//! [`StoreAddress`]: the address of a test's store.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use throng::durable::{DurableClient, DurableError, PostgresStore, RedisStore, SqliteStore};
use tokio::time::{Instant, sleep};

use super::support::TEST_TIMEOUT;

/// The address of a test's store, which all processes of the test open.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum StoreAddress {
    File(PathBuf),
    Server {
        service: Service,
        url: String,
        /// In milliseconds.
        answer_timeout: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Service {
    Redis { partitions: usize },
    Postgres,
}

/// Returns the name of the connections of a process to a database.
pub(crate) fn application_name(pid: u32) -> String {
    format!("throng-{pid}")
}

impl StoreAddress {
    /// Opens a new client. Retries while the server is unavailable, like a program that is restarted.
    pub(crate) async fn client(&self) -> DurableClient {
        let end = Instant::now() + TEST_TIMEOUT;
        loop {
            match self.open().await {
                Ok(client) => return client,
                Err(error) if self.is_file() => panic!("{error:?}"),
                Err(error) => assert!(Instant::now() < end, "{error:?}"),
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    pub(crate) fn is_file(&self) -> bool {
        matches!(self, Self::File(_))
    }

    async fn open(&self) -> Result<DurableClient, DurableError> {
        Ok(match self {
            Self::File(path) => DurableClient::open(SqliteStore::open(path).await?),
            Self::Server {
                service: Service::Redis { partitions },
                url,
                answer_timeout,
            } => {
                let mut store = RedisStore::builder(url);
                store.answer_timeout(Duration::from_millis(*answer_timeout));
                store.partitions(*partitions);
                DurableClient::open(store.open().await?)
            }
            Self::Server {
                service: Service::Postgres,
                url,
                answer_timeout,
            } => {
                let name = application_name(std::process::id());
                let mut store = PostgresStore::builder(&format!("{url} application_name={name}"));
                store.answer_timeout(Duration::from_millis(*answer_timeout));
                DurableClient::open(store.open().await?)
            }
        })
    }
}
