//! [`Receiver`]: an OTLP receiver, which keeps the spans that it gets.

use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use super::until;

/// An OTLP receiver on a free port.
pub(crate) struct Receiver {
    pub(crate) url: String,
    spans: Spans,
}

#[derive(Clone, Default)]
struct Spans(Arc<Mutex<Vec<Span>>>);

#[tonic::async_trait]
impl TraceService for Spans {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let resources = request.into_inner().resource_spans.into_iter();
        let scopes = resources.flat_map(|it| it.scope_spans);
        self.0
            .lock()
            .unwrap()
            .extend(scopes.flat_map(|it| it.spans));
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Receiver {
    /// Starts to listen.
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let spans = Spans::default();
        let service = TraceServiceServer::new(spans.clone());
        let server = Server::builder().add_service(service);
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        Self { url, spans }
    }

    /// The spans that have arrived.
    pub(crate) fn spans(&self) -> Vec<Span> {
        self.spans.0.lock().unwrap().clone()
    }

    /// Waits for a span with this name that belongs to the message.
    pub(crate) async fn span_of(&self, name: &str, message: &str) -> Span {
        let is_it =
            |span: &Span| span.name == name && text(span, "messaging.message.id") == message;
        until(name, async || self.spans().into_iter().find(is_it)).await
    }

    /// Waits for the span with this id.
    pub(crate) async fn span(&self, id: &[u8]) -> Span {
        let is_it = |span: &Span| span.span_id == id;
        until("a span arrives", async || {
            self.spans().into_iter().find(is_it)
        })
        .await
    }
}

/// Returns the text of an attribute, which is empty if the attribute is missing.
pub(crate) fn text(span: &Span, key: &str) -> String {
    let found = span.attributes.iter().find(|it| it.key == key);
    match found.and_then(|it| it.value.clone()?.value) {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        _ => String::new(),
    }
}

/// Returns an id as hexadecimal digits.
pub(crate) fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}
