//! `throng upgrade` on a store whose layout this version does not know.

use super::Result;
use super::store::TestStore;

/// The layouts that this version does not know, each with the remedy. There is no layout yet that it knows and would raise.
const UNKNOWN: [(i64, &str); 2] = [
    (1, "let the version that wrote it finish its tasks"),
    (3, "update throng"),
];

#[tokio::test]
async fn a_file_with_an_unknown_layout_is_refused_and_not_changed() -> Result {
    let store = TestStore::sqlite()?;
    store.open().await?.close().await?;
    let file = rusqlite::Connection::open(store.file())?;
    let set = |layout: i64| -> Result {
        let changed = file.execute("UPDATE throng_meta SET layout = ?1", [layout])?;
        assert_eq!(changed, 1);
        Ok(())
    };
    let get = || -> Result<i64> {
        let sql = "SELECT layout FROM throng_meta";
        Ok(file.query_row(sql, [], |row| row.get(0))?)
    };
    refuses_unknown_layouts(&store, set, get)
}

#[tokio::test]
async fn a_server_with_an_unknown_layout_is_refused_and_not_changed() -> Result {
    let store = TestStore::redis().await?;
    let client = redis::Client::open(store.address.as_str())?;
    let ask = |command: &[&str]| -> Result<Option<i64>> {
        let mut request = redis::cmd(command[0]);
        request.arg("throng:{default:0}:meta").arg(&command[1..]);
        Ok(request.query(&mut client.get_connection()?)?)
    };
    let set = |layout: i64| -> Result {
        let layout = layout.to_string();
        let added = ask(&["HSET", "layout", &layout, "layout_copy", &layout])?;
        // Both fields exist.
        assert_eq!(added, Some(0));
        Ok(())
    };
    let get = || -> Result<i64> { Ok(ask(&["HGET", "layout"])?.ok_or("there is no layout")?) };
    refuses_unknown_layouts(&store, set, get)
}

#[tokio::test]
async fn a_database_with_an_unknown_layout_is_refused_and_not_changed() -> Result {
    let store = TestStore::postgres().await?;
    let set = |layout: i64| -> Result {
        store.ask(&format!("UPDATE throng.meta SET layout = {layout}"))?;
        Ok(())
    };
    let get = || -> Result<i64> {
        let layout = store.ask("SELECT layout FROM throng.meta")?;
        Ok(layout.concat().parse()?)
    };
    refuses_unknown_layouts(&store, set, get)
}

fn refuses_unknown_layouts(
    store: &TestStore,
    set: impl Fn(i64) -> Result,
    get: impl Fn() -> Result<i64>,
) -> Result {
    let known = get()?;
    for (layout, remedy) in UNKNOWN {
        set(layout)?;
        for args in [&["upgrade", "--check"][..], &["upgrade"]] {
            let output = store.run(args)?;
            let error = String::from_utf8(output.stderr)?;
            assert_eq!(output.status.code(), Some(1), "{args:?}: {error}");
            let found = format!("layout {layout} of the store");
            assert!(error.contains(&found) && error.contains(remedy), "{error}");
        }
        assert_eq!(get()?, layout);
    }
    set(known)?;
    assert_eq!(store.run(&["upgrade", "--check"])?.status.code(), Some(0));
    Ok(())
}
