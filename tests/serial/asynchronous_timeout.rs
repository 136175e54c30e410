//! Asynchronous jobs whose caller stops waiting.

use std::net::SocketAddr;
use std::time::Duration;

use throng::{JoinHandle, SerialExecutor};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::occupied::occupy;
use crate::support::{Drops, current_thread, multi_thread, within};

const TIMEOUT: Duration = Duration::from_millis(50);

/// A server that accepts connections and never answers.
async fn silent_server() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Asks the server, in a job of its connection.
fn ask(connection: &SerialExecutor<TcpStream>) -> JoinHandle<std::io::Result<u8>> {
    connection.submit_async(|mut stream| async move {
        stream.write_all(b"?").await?;
        stream.read_u8().await
    })
}

#[test]
fn a_timeout_of_an_abort_on_drop_handle_frees_the_state_from_a_server_that_never_answers() {
    for workers in [0, 2] {
        let runtime = match workers {
            0 => current_thread(),
            workers => multi_thread(workers, "drain"),
        };
        runtime.block_on(async {
            let (server, address) = silent_server().await;
            let connection = SerialExecutor::new(TcpStream::connect(address).await.unwrap());
            let (mut accepted, _) = server.accept().await.unwrap();

            let answer = ask(&connection).abort_on_drop();
            timeout(TIMEOUT, answer).await.unwrap_err();
            // The request was written, so the job had the state and waited for the answer.
            assert_eq!(within(accepted.read_u8()).await.unwrap(), b'?');

            // The next job has the state, and replaces the connection.
            let again = TcpStream::connect(address).await.unwrap();
            within(connection.submit(|stream| *stream = again))
                .await
                .unwrap();
            let (mut accepted, _) = server.accept().await.unwrap();
            let answer = ask(&connection);
            assert_eq!(within(accepted.read_u8()).await.unwrap(), b'?');
            accepted.write_all(b"!").await.unwrap();
            assert_eq!(within(answer).await.unwrap().unwrap(), b'!');
        });
    }
}

#[test]
fn a_timeout_of_a_plain_handle_leaves_the_job_with_the_state() {
    current_thread().block_on(async {
        let (server, address) = silent_server().await;
        let connection = SerialExecutor::new(TcpStream::connect(address).await.unwrap());
        let (mut accepted, _) = server.accept().await.unwrap();
        let mut answer = ask(&connection);
        timeout(TIMEOUT, &mut answer).await.unwrap_err();
        let abort = answer.abort_handle();
        drop(answer);

        let next = connection.submit(|_| ());
        // Another timeout passes, which frees the state just as little.
        tokio::time::sleep(TIMEOUT).await;
        assert!(!next.is_finished());
        assert_eq!(within(accepted.read_u8()).await.unwrap(), b'?');
        abort.abort();
        within(next).await.unwrap();
    });
}

#[test]
fn a_timeout_before_the_job_has_started_drops_it() {
    current_thread().block_on(async {
        let executor = SerialExecutor::new(());
        let drops = Drops::new();
        let busy = occupy(&executor);
        let value = drops.value();
        let job = executor.submit_async(|_| async { drop(value) });
        timeout(TIMEOUT, job.abort_on_drop()).await.unwrap_err();
        assert_eq!(drops.count(), 1);
        busy.release();
        within(executor.submit(|()| ())).await.unwrap();
    });
}
