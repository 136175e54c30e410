//! The screen in three sizes, and the keys. The data come from a store in a file.

use std::env;
use std::io::{self, IsTerminal, Read};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent};
use ratatui::{DefaultTerminal, Terminal};
use throng::durable::{
    DurableClient, EncodedTask, QueueSettings, SpawnOptions, SqliteStore, Status, TaskFilter,
    TaskId,
};

use super::data::{self, TopData};
use super::draw::draw;
use super::keys::{HELP, TopAction};
use super::model::TopModel;
use super::on_screen;
use super::tab::TopTab;
use crate::failure::Failure;
use crate::store::Session;

/// The pseudo-terminal of the tests of the whole program.
#[path = "../../../tests/cli/terminal.rs"]
#[allow(dead_code, reason = "the other tests use all of it")]
mod pseudo;

/// A name that tries to clear the terminal and to reverse a text.
const HOSTILE: &str = "x\x1b[2J\u{202e}y";

/// A store with a delayed task, three waiting ones, and a queue.
struct TopScene {
    session: Session,
    _folder: tempfile::TempDir,
}

impl TopScene {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(folder.path().join("tasks.db"))
            .await
            .unwrap();
        let client = DurableClient::open(store);
        for (name, delay) in [
            ("mail.send", 0),
            ("mail.send", 3600),
            (HOSTILE, 0),
            ("report", 0),
        ] {
            let options = SpawnOptions::new().delay(Duration::from_secs(delay));
            let task = EncodedTask::new(name, "{}");
            client.spawn_encoded::<()>(task, options).await.unwrap();
        }
        client
            .queue("reports")
            .set(QueueSettings::new().max_running(4))
            .await
            .unwrap();
        Self {
            session: Session::new(client, Duration::from_secs(10), false),
            _folder: folder,
        }
    }

    async fn data(&self, tab: TopTab) -> TopData {
        data::read(&self.session, tab).await.unwrap()
    }

    async fn model(&self) -> TopModel {
        TopModel::new(true, self.data(TopTab::Queues).await)
    }
}

fn press(model: &mut TopModel, code: KeyCode) -> Option<TopAction> {
    model.press(KeyEvent::from(code))
}

/// Returns what a screen of this size shows.
fn screen(model: &TopModel, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, model)).unwrap();
    let text = terminal.backend().to_string();
    let lines = text.lines().map(|line| line.trim_matches('"').trim_end());
    lines.map(|line| format!("{line}\n")).collect()
}

fn check(text: &str, file: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(file);
    let time = regex::Regex::new(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ").unwrap();
    let text = time.replace_all(text, "2026-11-26T12:00:00Z").into_owned();
    let assert = snapbox::Assert::new().action_env("SNAPSHOTS");
    assert.eq(text, snapbox::Data::read_from(&path, None).raw());
}

#[tokio::test]
async fn the_screen_fits_three_sizes() {
    let scene = TopScene::new().await;
    let model = scene.model().await;
    for (width, height) in [(80, 24), (120, 40), (40, 12)] {
        check(
            &screen(&model, width, height),
            &format!("top.{width}x{height}.txt"),
        );
    }
}

#[tokio::test]
async fn a_tiny_screen_is_no_panic() {
    let scene = TopScene::new().await;
    let mut model = scene.model().await;
    press(&mut model, KeyCode::Char('?'));
    for (width, height) in [(1, 1), (5, 3), (59, 2), (200, 4)] {
        screen(&model, width, height);
    }
}

#[tokio::test]
async fn the_help_fits_the_smallest_screen() {
    let scene = TopScene::new().await;
    let mut model = scene.model().await;
    press(&mut model, KeyCode::Char('?'));
    let text = screen(&model, 40, 12);
    for (key, effect) in HELP {
        assert!(text.contains(key) && text.contains(effect), "{text}");
    }
    press(&mut model, KeyCode::Esc);
    assert!(!screen(&model, 40, 12).contains("quits"));
}

/// A narrow screen cuts the fields of a row, so its details are shown one below the other.
#[tokio::test]
async fn details_of_a_row_are_shown_and_scrolled() {
    let scene = TopScene::new().await;
    let mut model = scene.model().await;
    press(&mut model, KeyCode::Down);
    assert_eq!(press(&mut model, KeyCode::Enter), None);
    let text = screen(&model, 40, 12);
    assert!(text.contains("QUEUE     reports"), "{text}");
    press(&mut model, KeyCode::Down);
    let text = screen(&model, 40, 12);
    assert!(
        !text.contains("QUEUE ") && text.contains("OLDEST"),
        "{text}"
    );
    press(&mut model, KeyCode::PageDown);
    press(&mut model, KeyCode::PageUp);
    assert_eq!(model.scroll, 0);
    press(&mut model, KeyCode::Esc);
    assert!(model.detail.is_none() && model.selected == 1);
}

/// The next test runs this in a process of its own.
#[tokio::test]
#[ignore = "another test runs it in a process of its own"]
async fn a_panic_on_the_screen() {
    // Without a terminal, `--ignored` has selected this test.
    if !io::stdin().is_terminal() {
        return;
    }
    let panics = async |_: &mut DefaultTerminal| -> Result<(), Failure> {
        io::stdin().read_exact(&mut [0])?;
        panic!("this is a defect");
    };
    on_screen(panics).await.unwrap();
}

#[test]
fn the_terminal_is_restored_after_a_panic() {
    let mut terminal = pseudo::Terminal::open().unwrap();
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "--nocapture"]);
    command.arg("cmd::top::tests::a_panic_on_the_screen");
    // The message must not scroll off the screen.
    command.env("RUST_BACKTRACE", "0");
    let mut child = terminal.spawn(command).unwrap();
    let is_open = |screen: &vt100::Screen| screen.alternate_screen();
    terminal.wait_until("screen", is_open).unwrap();
    assert!(!terminal.is_restored().unwrap());
    terminal.type_keys("x").unwrap();
    terminal.wait_for("this is a defect").unwrap();
    assert!(!terminal.screen().alternate_screen());
    assert!(terminal.is_restored().unwrap());
    child.wait().unwrap();
}

#[tokio::test]
async fn hostile_names_are_escaped() {
    let scene = TopScene::new().await;
    let mut model = scene.model().await;
    model.open(TopTab::Types);
    model.update(Ok(scene.data(TopTab::Types).await));
    let text = screen(&model, 100, 24);
    assert!(text.contains("x\\u{1b}[2J\\u{202e}y"), "{text}");
    assert!(
        text.chars()
            .all(|it| it == '\n' || !it.is_control() && it != '\u{202e}')
    );
}

#[tokio::test]
async fn a_filter_hides_other_rows() {
    let scene = TopScene::new().await;
    let mut model = scene.model().await;
    assert_eq!(model.rows().len(), 2);
    press(&mut model, KeyCode::Char('/'));
    "repq"
        .chars()
        .for_each(|it| drop(press(&mut model, KeyCode::Char(it))));
    assert_eq!(model.rows().len(), 0);
    press(&mut model, KeyCode::Backspace);
    assert_eq!(model.rows().len(), 1);
    assert_eq!(press(&mut model, KeyCode::Enter), None);
    assert_eq!(press(&mut model, KeyCode::Char('q')), Some(TopAction::Quit));
    press(&mut model, KeyCode::Esc);
    assert_eq!(model.rows().len(), 2);
}

#[tokio::test]
async fn a_frozen_screen_stays_until_it_is_continued_or_another_tab_is_opened() {
    let scene = TopScene::new().await;
    let mut model = scene.model().await;
    press(&mut model, KeyCode::Char('p'));
    assert!(model.is_frozen);
    assert_eq!(press(&mut model, KeyCode::Tab), Some(TopAction::Refresh));
    assert!(!model.is_frozen && model.tab == TopTab::Running);
    assert_eq!(
        press(&mut model, KeyCode::Char('5')),
        Some(TopAction::Refresh)
    );
    assert_eq!(model.tab, TopTab::Types);
}

#[tokio::test]
async fn a_change_needs_permission_a_task_and_a_confirmation() {
    let scene = TopScene::new().await;
    let mut model = scene.model().await;
    press(&mut model, KeyCode::Char('r'));
    assert!(
        model.pending.is_none() && model.message.as_ref().is_some_and(|it| it.contains("Dead"))
    );
    let (mut reading, id) = (scene.model().await, waiting(&scene).await);
    reading.can_operate = false;
    press(&mut reading, KeyCode::Char('r'));
    assert!(
        reading
            .message
            .as_ref()
            .is_some_and(|it| it.contains("--operate"))
    );
    let change = throng::durable::TaskChange::Replay;
    for (key, expected) in [
        ('n', None),
        ('y', Some(TopAction::Change(id, change.clone()))),
    ] {
        model.pending = Some((id, change.clone()));
        assert_eq!(press(&mut model, KeyCode::Char(key)), expected);
        assert!(model.pending.is_none());
    }
}

async fn waiting(scene: &TopScene) -> TaskId {
    let filter = TaskFilter::new(Status::Waiting);
    let page = scene
        .session
        .client
        .admin()
        .tasks(&filter, None, 1)
        .await
        .unwrap();
    page.tasks[0].id
}
