//! A store in Redis.

use crate::api::answers_are_as_described;
use crate::hostile::no_answer_has_the_secret;
use crate::pages::each_page_shows_what_the_store_has;
use crate::server::Server;
use crate::stage::Stage;

#[tokio::test]
async fn a_server_is_shown_like_other_stores() {
    let server = Server::start().expect("redis-server is installed");
    let client = server.open().await.expect("the server answers");
    let stage = Stage::of(client, None).await;
    each_page_shows_what_the_store_has(&stage).await;
    answers_are_as_described(&stage).await;
    no_answer_has_the_secret(&stage).await;
}
