//! `throng namespaces`: lists the namespaces of the stores in a Redis server.

use serde::Serialize;

use crate::failure::Failure;
use crate::out::{Column, ListEnd, Output};
use crate::store::StoreArgs;

#[derive(Debug, Serialize)]
struct NamespaceRow {
    namespace: String,
}

static NAMESPACE_COLUMNS: [Column<NamespaceRow>; 1] = [Column {
    title: "NAMESPACE",
    text: |row| row.namespace.clone(),
}];

/// Lists the namespaces.
pub(crate) async fn run(store: &StoreArgs, out: &mut Output) -> Result<(), Failure> {
    let namespaces = store.namespaces().await?.into_iter();
    let rows: Vec<_> = namespaces
        .map(|namespace| NamespaceRow { namespace })
        .collect();
    let mut list = out.list(&NAMESPACE_COLUMNS);
    list.rows(&rows)?;
    list.finish(ListEnd::default())
}
