//! [`RecentAnswers`] lets equal questions to a store share an answer.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use throng::durable::{Cursor, TaskFilter, TaskId};
use tokio::sync::OnceCell;
use tokio::time::Instant;

use crate::error::WebError;
use crate::views::charts::ChartRange;

/// A question to a store. Equal questions have the same answer for all viewers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Question {
    Overview,
    Statistics(ChartRange),
    Tasks(TaskFilter, Option<Cursor>, usize),
    /// The head of a queue, which is the default queue if there is no name.
    Head(Option<String>, usize),
    Task(TaskId),
    Retention,
    Workers(Option<Cursor>),
    Worker(u64),
    /// The schedules after the one with this name.
    Schedules(Option<String>),
    Schedule(String),
}

/// The answers to the last questions. Viewers who load the same page at the same time cost the store no more than one of them.
#[derive(Default)]
pub(crate) struct RecentAnswers {
    asked: Mutex<Vec<Asked>>,
}

/// A question, and the cell for its answer.
struct Asked {
    question: Question,
    /// `None` while the question runs.
    answered: Option<Instant>,
    answer: Arc<dyn Any + Send + Sync>,
}

/// The time for which equal questions share an answer that has arrived.
pub(crate) const SHARED_FOR: Duration = Duration::from_millis(250);
/// The maximum number of answers that are kept, which bounds their memory.
const MAX_ANSWERS: usize = 16;

type AnswerCell<T> = OnceCell<Result<T, WebError>>;

impl RecentAnswers {
    /// Returns the answer to a question. If an equal question was asked shortly before, it returns that answer, for which it may have to
    /// wait. Only those who already wait for an answer share an error.
    pub(crate) async fn get<T: Clone + Send + Sync + 'static>(
        &self,
        question: Question,
        ask: impl Future<Output = Result<T, WebError>>,
    ) -> Result<T, WebError> {
        let cell = self.cell(question);
        let ask = async {
            let answer = ask.await;
            self.answered(&cell);
            answer
        };
        let answer = cell.get_or_init(|| ask).await.clone();
        if answer.is_err() {
            self.forget(&cell);
        }
        answer
    }

    /// Removes all answers, because the store was changed: later questions do not share them.
    pub(crate) fn clear(&self) {
        self.lock().clear();
    }

    /// Returns the cell of an equal question or, if there is none, a new one.
    fn cell<T: Send + Sync + 'static>(&self, question: Question) -> Arc<AnswerCell<T>> {
        let mut asked = self.lock();
        asked.retain(|it| it.answered.is_none_or(|at| at.elapsed() < SHARED_FOR));
        let equal = asked.iter().find(|it| it.question == question);
        let found = equal.and_then(|it| Arc::clone(&it.answer).downcast().ok());
        found.unwrap_or_else(|| {
            let cell = Arc::<AnswerCell<T>>::default();
            if asked.len() == MAX_ANSWERS {
                asked.remove(0);
            }
            asked.push(Asked {
                question,
                answered: None,
                answer: Arc::clone(&cell) as _,
            });
            cell
        })
    }

    /// Begins the time for which the answer is shared.
    fn answered<T>(&self, cell: &Arc<AnswerCell<T>>) {
        let mut asked = self.lock();
        if let Some(asked) = asked.iter_mut().find(|it| it.has(cell)) {
            asked.answered = Some(Instant::now());
        }
    }

    fn forget<T>(&self, cell: &Arc<AnswerCell<T>>) {
        self.lock().retain(|it| !it.has(cell));
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Asked>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Asked {
    fn has<T>(&self, cell: &Arc<AnswerCell<T>>) -> bool {
        ptr::addr_eq(Arc::as_ptr(&self.answer), Arc::as_ptr(cell))
    }
}

impl fmt::Debug for RecentAnswers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecentAnswers").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::sync::atomic::{AtomicU32, Ordering};

    use futures_util::future::join_all;
    use tokio::task::yield_now;

    use super::*;
    use crate::gate::GateError;

    fn schedule(number: usize) -> Question {
        Question::Schedule(format!("schedule-{number}"))
    }

    #[tokio::test]
    async fn equal_questions_share_an_answer_for_a_while() {
        tokio::time::pause();
        let (recent, asked) = (RecentAnswers::default(), AtomicU32::new(0));
        let ask = |question| {
            recent.get(question, async {
                yield_now().await;
                Ok(asked.fetch_add(1, Ordering::Relaxed))
            })
        };
        let answers = join_all((0..50).map(|_| ask(Question::Overview))).await;
        assert!(answers.iter().all(|it| matches!(it, Ok(0))), "{answers:?}");
        assert_eq!(ask(Question::Retention).await.unwrap(), 1);
        tokio::time::advance(SHARED_FOR - Duration::from_millis(1)).await;
        assert_eq!(ask(Question::Overview).await.unwrap(), 0);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(ask(Question::Overview).await.unwrap(), 2);
        recent.clear();
        assert_eq!(ask(Question::Overview).await.unwrap(), 3);
    }

    #[tokio::test]
    async fn a_question_that_runs_is_not_asked_again() {
        tokio::time::pause();
        let (recent, asked) = (RecentAnswers::default(), AtomicU32::new(0));
        let ask = || {
            recent.get(Question::Overview, async {
                tokio::time::sleep(8 * SHARED_FOR).await;
                Ok(asked.fetch_add(1, Ordering::Relaxed))
            })
        };
        let later = async {
            tokio::time::sleep(4 * SHARED_FOR).await;
            ask().await
        };
        let (first, second) = tokio::join!(ask(), later);
        assert_eq!((first.unwrap(), second.unwrap()), (0, 0));
        assert_eq!(ask().await.unwrap(), 0);
        tokio::time::advance(SHARED_FOR).await;
        assert_eq!(ask().await.unwrap(), 1);
    }

    #[tokio::test]
    async fn an_error_is_shared_only_by_those_who_wait_for_it() {
        let (recent, asked) = (RecentAnswers::default(), AtomicU32::new(0));
        let ask = || {
            recent.get(Question::Overview, async {
                asked.fetch_add(1, Ordering::Relaxed);
                yield_now().await;
                Err::<(), WebError>(GateError::TimedOut.into())
            })
        };
        assert!(
            join_all((0..50).map(|_| ask()))
                .await
                .iter()
                .all(Result::is_err)
        );
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        let answer = recent.get(Question::Overview, ready(Ok(7))).await;
        assert_eq!(answer.unwrap(), 7);
    }

    #[tokio::test]
    async fn a_question_whose_asker_has_left_is_asked_by_the_next_one() {
        let recent = RecentAnswers::default();
        let left = recent.get(Question::Overview, pending::<Result<u32, _>>());
        assert!(tokio::time::timeout(Duration::ZERO, left).await.is_err());
        let answer = recent.get(Question::Overview, ready(Ok(7))).await;
        assert_eq!(answer.unwrap(), 7);
    }

    #[tokio::test]
    async fn few_answers_are_kept() {
        let recent = RecentAnswers::default();
        for number in 0..2 * MAX_ANSWERS {
            let answer = recent.get(schedule(number), ready(Ok(number))).await;
            assert_eq!(answer.unwrap(), number);
        }
        assert!(recent.lock().len() <= MAX_ANSWERS);
    }
}
