//! A simulation of a fleet, which predicts the CPU time of the server from what the requests of one worker cost.
//!
//! The server handles one request at a time. A worker has one turn under way at most, and reports with the next one all tasks that have
//! ended meanwhile: the busier it is, the fewer turns a task costs. With one partition, the server claims tasks for the worker that has
//! been idle last as soon as they are stored. With several, it wakes that worker, whose turn then visits the partition.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The costs of requests, in nanoseconds of the server's CPU time, and the time that they are under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Costs {
    /// A request that stores a task, and the message to the worker that it is for.
    pub(super) store: u64,
    /// A visit of a partition by a turn.
    pub(super) visit: u64,
    /// Each task that a turn claims or reports, in addition.
    pub(super) task: u64,
    /// One way between a process and the server, with the time until that process runs.
    pub(super) way: u64,
}

/// The fleet, and what it does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fleet {
    pub(super) workers: usize,
    pub(super) partitions: usize,
    /// The number of tasks that a worker runs at a time.
    pub(super) permits: u64,
    /// The tasks that are stored in a second.
    pub(super) rate: u64,
}

/// The prediction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prediction {
    /// The CPU time of the server in a second.
    pub(super) cpu_us_per_s: f64,
    pub(super) scripts_per_task: f64,
}

/// Simulates the fleet while it runs this number of tasks.
pub(super) fn predict(fleet: Fleet, costs: Costs, tasks: u64) -> Prediction {
    let mut model = Model::new(fleet, costs);
    for number in 0..tasks {
        let partition = partition_of(number, fleet.partitions);
        model.push(number * 1_000_000_000 / fleet.rate, Event::Store(partition));
    }
    while let Some(Reverse((at, _, event))) = model.events.pop() {
        model.now = at;
        model.handle(event);
    }
    let seconds = tasks as f64 / fleet.rate as f64;
    Prediction {
        cpu_us_per_s: model.busy as f64 / 1e3 / seconds,
        scripts_per_task: model.scripts as f64 / tasks as f64,
    }
}

/// Completes costs by the time under way with which this fleet needs this number of scripts for each task: the longer requests are under
/// way, the more tasks does a visit report.
pub(super) fn with_way(fleet: Fleet, costs: Costs, scripts_per_task: f64) -> Costs {
    let (mut short, mut long) = (1_000_u64, 4_000_000);
    while long - short > 1_000 {
        let way = short.midpoint(long);
        let predicted = predict(fleet, Costs { way, ..costs }, fleet.rate);
        match predicted.scripts_per_task > scripts_per_task {
            true => short = way,
            false => long = way,
        }
    }
    Costs {
        way: short,
        ..costs
    }
}

/// The ids of tasks are random.
fn partition_of(number: u64, partitions: usize) -> usize {
    let hash = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    hash as usize % partitions
}

/// What happens at a time. The server gets what is stored and the visits, and workers the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Store(usize),
    Visit {
        worker: usize,
        partition: usize,
    },
    Wake {
        worker: usize,
        partition: usize,
    },
    Started {
        worker: usize,
        partition: usize,
    },
    Visited {
        worker: usize,
        partition: usize,
        claimed: u64,
    },
}

struct Model {
    fleet: Fleet,
    costs: Costs,
    now: u64,
    /// In the order of time, and of their numbers.
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    pushed: u64,
    /// The time until which the server is busy.
    free_at: u64,
    busy: u64,
    scripts: u64,
    partitions: Vec<Partition>,
    workers: Vec<Worker>,
}

#[derive(Clone, Default)]
struct Partition {
    waiting: u64,
    /// The idle workers, the last one at the end, with the number of tasks that each accepts.
    idle: Vec<(usize, u64)>,
}

#[derive(Clone, Default)]
struct Worker {
    running: u64,
    is_turning: bool,
    /// By partition: tasks that have ended, and whether the partition has woken the worker.
    ended: Vec<u64>,
    woken: Vec<bool>,
}

impl Model {
    /// All workers are idle.
    fn new(fleet: Fleet, costs: Costs) -> Self {
        let worker = Worker {
            ended: vec![0; fleet.partitions],
            woken: vec![false; fleet.partitions],
            ..Worker::default()
        };
        let idle = (0..fleet.workers).map(|worker| (worker, fleet.permits));
        let partition = Partition {
            waiting: 0,
            idle: idle.collect(),
        };
        Self {
            fleet,
            costs,
            now: 0,
            events: BinaryHeap::new(),
            pushed: 0,
            free_at: 0,
            busy: 0,
            scripts: 0,
            partitions: vec![partition; fleet.partitions],
            workers: vec![worker; fleet.workers],
        }
    }

    fn push(&mut self, at: u64, event: Event) {
        self.pushed += 1;
        self.events.push(Reverse((at, self.pushed, event)));
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Store(partition) => self.store(partition),
            Event::Visit { worker, partition } => self.visit(worker, partition),
            Event::Wake { worker, partition } => {
                self.workers[worker].woken[partition] = true;
                self.turn(worker);
            }
            Event::Started { worker, partition } => self.end(worker, partition, 1),
            Event::Visited {
                worker,
                partition,
                claimed,
            } => {
                self.workers[worker].is_turning = false;
                self.end(worker, partition, claimed);
            }
        }
    }

    /// Has the server do something. Returns the time at which a process learns of it.
    fn serve(&mut self, cost: u64) -> u64 {
        self.scripts += 1;
        self.busy += cost;
        self.free_at = self.free_at.max(self.now) + cost;
        self.free_at + self.costs.way
    }

    fn store(&mut self, partition: usize) {
        let at = self.serve(self.costs.store);
        let is_only = self.fleet.partitions == 1;
        let place = &mut self.partitions[partition];
        let Some((worker, accepted)) = place.idle.pop() else {
            place.waiting += 1;
            return;
        };
        if !is_only {
            place.waiting += 1;
            return self.push(at, Event::Wake { worker, partition });
        }
        if accepted > 1 {
            place.idle.push((worker, accepted - 1));
        }
        self.workers[worker].running += 1;
        self.push(at, Event::Started { worker, partition });
    }

    /// Reports the tasks that have ended, claims, and goes idle if a permit is left.
    fn visit(&mut self, worker: usize, partition: usize) {
        let it = &mut self.workers[worker];
        let ended = std::mem::take(&mut it.ended[partition]);
        it.woken[partition] = false;
        it.running -= ended;
        let place = &mut self.partitions[partition];
        let claimed = place.waiting.min(self.fleet.permits - it.running);
        place.waiting -= claimed;
        it.running += claimed;
        place.idle.retain(|(other, _)| *other != worker);
        if it.running < self.fleet.permits {
            place.idle.push((worker, self.fleet.permits - it.running));
        }
        let at = self.serve(self.costs.visit + self.costs.task * (ended + claimed));
        self.push(
            at,
            Event::Visited {
                worker,
                partition,
                claimed,
            },
        );
    }

    /// Tasks take no time.
    fn end(&mut self, worker: usize, partition: usize, tasks: u64) {
        self.workers[worker].ended[partition] += tasks;
        self.turn(worker);
    }

    /// Sends the next visit, if there is a reason and none is under way.
    fn turn(&mut self, worker: usize) {
        let it = &mut self.workers[worker];
        let has_reason = |partition: &usize| it.ended[*partition] > 0 || it.woken[*partition];
        let next = (0..self.fleet.partitions).find(has_reason);
        if let Some(partition) = next.filter(|_| !it.is_turning) {
            it.is_turning = true;
            self.push(
                self.now + self.costs.way,
                Event::Visit { worker, partition },
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COSTS: Costs = Costs {
        store: 40_000,
        visit: 40_000,
        task: 4_000,
        way: 100_000,
    };

    fn fleet(rate: u64, partitions: usize) -> Fleet {
        Fleet {
            workers: 10,
            partitions,
            permits: 64,
            rate,
        }
    }

    #[test]
    fn a_task_at_a_time_costs_a_request_and_a_turn() {
        let predicted = predict(fleet(10, 1), COSTS, 1_000);
        assert_eq!(predicted.scripts_per_task, 2.0);
        assert_eq!(predicted.cpu_us_per_s, 10.0 * 84.0);
    }

    /// The turn that claims the task, and the one that reports it.
    #[test]
    fn a_task_in_one_of_several_partitions_costs_another_turn() {
        let predicted = predict(fleet(10, 4), COSTS, 1_000);
        assert_eq!(predicted.scripts_per_task, 3.0);
    }

    #[test]
    fn the_time_under_way_is_found() {
        for (rate, partitions) in [(5_000, 1), (5_000, 4)] {
            let fleet = fleet(rate, partitions);
            let scripts = predict(fleet, COSTS, rate).scripts_per_task;
            let found = with_way(fleet, Costs { way: 0, ..COSTS }, scripts);
            let again = predict(fleet, found, rate).scripts_per_task;
            assert!((again - scripts).abs() < 0.05, "{found:?}");
        }
    }

    #[test]
    fn the_more_tasks_there_are_the_fewer_turns_does_each_cost() {
        let [slow, fast] = [100, 8_000].map(|rate| predict(fleet(rate, 1), COSTS, 20_000));
        assert!(
            fast.scripts_per_task < slow.scripts_per_task - 0.3,
            "{fast:?}"
        );
    }
}
