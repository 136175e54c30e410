//! A store in PostgreSQL.

use throng::durable::{DurableClient, PostgresStore};

use crate::api::answers_are_as_described;
use crate::hostile::no_answer_has_the_secret;
use crate::pages::each_page_shows_what_the_store_has;
use crate::postgres_server::Server;
use crate::stage::Stage;

#[tokio::test]
async fn a_database_is_shown_like_other_stores() {
    let server = Server::start();
    let store = PostgresStore::open(&server.address()).await;
    let client = DurableClient::open(store.expect("the server answers"));
    let stage = Stage::of(client, None).await;
    each_page_shows_what_the_store_has(&stage).await;
    answers_are_as_described(&stage).await;
    no_answer_has_the_secret(&stage).await;
}
