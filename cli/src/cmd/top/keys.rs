//! The keys and their effects.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use throng::durable::{TaskChange, TaskId};

use super::model::TopModel;
use super::tab::TopTab;

/// A request of the screen to the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TopAction {
    Quit,
    /// Reads the data now.
    Refresh,
    Show(TaskId),
    Change(TaskId, TaskChange),
}

/// The keys, and what they do.
pub(super) const HELP: [(&str, &str); 10] = [
    ("1 to 5, Tab", "opens a tab"),
    ("Up, Down", "selects, or scrolls"),
    ("Enter", "shows the selected row"),
    ("/", "filters the rows"),
    ("r", "replays the dead letter"),
    ("x", "cancels the running task"),
    ("p", "freezes, or continues"),
    ("Esc", "closes, ends the filter"),
    ("?", "shows these keys"),
    ("q", "quits"),
];

impl TopModel {
    /// Reacts to a key.
    pub(super) fn press(&mut self, key: KeyEvent) -> Option<TopAction> {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return Some(TopAction::Quit);
        }
        self.message = None;
        if let Some((id, change)) = self.pending.take() {
            return (key.code == KeyCode::Char('y')).then_some(TopAction::Change(id, change));
        }
        match self.is_filtering {
            true => self.filter_key(key.code),
            false => self.command_key(key.code),
        }
    }

    fn filter_key(&mut self, code: KeyCode) -> Option<TopAction> {
        match code {
            KeyCode::Enter => self.is_filtering = false,
            KeyCode::Esc => {
                self.is_filtering = false;
                self.filter.clear();
            }
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Char(character) => self.filter.push(character),
            _ => {}
        }
        self.select(0);
        None
    }

    fn command_key(&mut self, code: KeyCode) -> Option<TopAction> {
        match code {
            KeyCode::Char('q') => return Some(TopAction::Quit),
            KeyCode::Char(digit @ '1'..='5') => {
                return self.go_to(TopTab::ALL[digit as usize - '1' as usize]);
            }
            KeyCode::Tab => return self.go_to(self.tab.next()),
            KeyCode::Down | KeyCode::Char('j') => self.move_by(1),
            KeyCode::Up | KeyCode::Char('k') => self.move_by(-1),
            KeyCode::PageDown => self.move_by(20),
            KeyCode::PageUp => self.move_by(-20),
            KeyCode::Char('/') => self.is_filtering = true,
            KeyCode::Char('?') => self.is_help = !self.is_help,
            KeyCode::Char('p') => self.is_frozen = !self.is_frozen,
            KeyCode::Esc => self.close(),
            KeyCode::Enter => return self.details(),
            KeyCode::Char('r') => self.ask(TopTab::Dead, TaskChange::Replay),
            KeyCode::Char('x') => self.ask(TopTab::Running, TaskChange::Cancel),
            _ => {}
        }
        None
    }

    fn go_to(&mut self, tab: TopTab) -> Option<TopAction> {
        self.close();
        self.open(tab);
        self.is_frozen = false;
        Some(TopAction::Refresh)
    }

    fn move_by(&mut self, by: isize) {
        if !self.scroll(by) {
            self.select(by);
        }
    }

    /// Shows the selected row. The details of a task have to be read.
    fn details(&mut self) -> Option<TopAction> {
        match self.task() {
            Some(id) => Some(TopAction::Show(id)),
            None => {
                if let Some(fields) = self.fields() {
                    self.show(fields);
                }
                None
            }
        }
    }

    fn close(&mut self) {
        self.is_help = false;
        self.detail = None;
        self.filter.clear();
    }

    /// Asks for a confirmation of a change, which is possible in one of the tabs.
    fn ask(&mut self, tab: TopTab, change: TaskChange) {
        let id = self.task().filter(|_| self.tab == tab);
        match (self.can_operate, id) {
            (false, _) => {
                let how = "read-only: start `throng top --operate` to change tasks";
                self.message = Some(how.into());
            }
            (true, None) => {
                let how = format!("select a task in the tab {} first", tab.name());
                self.message = Some(how);
            }
            (true, Some(id)) => self.pending = Some((id, change)),
        }
    }
}
