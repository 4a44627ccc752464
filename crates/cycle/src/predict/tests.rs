//! Bounds of task sets from textbooks and worked out by hand, and what holds of the bounds of any.

use horolog_record::{
    CyclePredictBound, CyclePredictCost, CyclePredictCostKind as Kind, CyclePredictMethod,
    CyclePredictPercentile as Worst, CyclePredictTermKind as Term, CyclePredictVerdict as Verdict,
    FindingCode, Severity,
};
use proptest::prelude::*;
use proptest::sample::select;

use super::cost::tests::{cost, every, message};
use super::*;
use crate::task::{
    ComputeAmount, MessageDestination, Policy, SchedulingSpec, Superstep, SuperstepMessage, Task,
    TaskSet, TaskWork,
};

pub(super) const MS: u64 = 1_000_000;
pub(super) const ONE_CORE: PredictedHostConfig =
    PredictedHostConfig { nodes: 1, cores: 1, real_time_share: None };

fn task(name: &str, priority: u8, period: u64, worst: u64) -> Task {
    Task {
        name: name.to_owned(),
        period_ns: period * MS,
        deadline_ns: period * MS,
        offset_ns: 0,
        schedule: SchedulingSpec { policy: Policy::Fifo, priority, core: Some(0) },
        work: TaskWork::Steps(vec![Superstep {
            compute: ComputeAmount::Units(1),
            message: None,
            barrier: false,
        }]),
        worst_ns: Some(worst * MS),
        critical_ns: 0,
    }
}

/// "Process set D" of Burns and Wellings, Real-Time Systems and Programming Languages: periods of
/// 7, 12 and 20 with 3, 3 and 5 of work, which end after 3, 6 and 20.
fn set_d() -> Vec<Task> {
    vec![task("a", 3, 7, 3), task("b", 2, 12, 3), task("c", 1, 20, 5)]
}

pub(super) fn predicted(
    tasks: &[Task],
    costs: &[CyclePredictCost],
    machine: PredictedHostConfig,
) -> Prediction {
    let set = TaskSet::new(tasks.to_vec()).unwrap();
    predict(&set, &HostCosts::new(costs.to_vec()), machine).unwrap()
}

fn responses(tasks: &[Task], costs: &[CyclePredictCost]) -> Vec<Option<u64>> {
    let all = predicted(tasks, costs, ONE_CORE).tasks;
    all.iter().map(|task| task.safe.as_ref().map(|safe| safe.response_ns / MS)).collect()
}

fn release(ms: u64) -> CyclePredictCost {
    cost(Kind::Release, None, ms * MS)
}

#[test]
fn the_examples_of_textbooks_come_out_as_printed_there() {
    assert_eq!(responses(&set_d(), &[]), [Some(3), Some(6), Some(20)]);
    // Sha and Goodenough 1990: above the bound of Liu and Layland, and yet in time.
    let sha = [task("a", 3, 100, 40), task("b", 2, 150, 40), task("c", 1, 350, 100)];
    assert_eq!(responses(&sha, &[]), [Some(40), Some(80), Some(300)]);
    // Among equals each may have to wait for all others.
    let mut equal = set_d();
    for task in &mut equal {
        task.schedule.priority = 1;
        task.period_ns *= 2;
        task.deadline_ns *= 2;
    }
    equal[2].schedule.policy = Policy::Rr;
    assert_eq!(responses(&equal, &[]), [Some(11), Some(11), Some(11)]);
}

/// Worked out by hand, with the equations of Audsley et al. 1993.
#[test]
fn blocking_jitter_switches_and_interrupts_are_counted() {
    let mut tasks = set_d();
    tasks[2].critical_ns = 2 * MS;
    // a: 2 + 3. b: 2 + 3 + ceil(8/7) 3 = 11, and again. c: as without.
    assert_eq!(responses(&tasks, &[]), [Some(5), Some(11), Some(20)]);
    // a: 1 + 5. b: 1 + (5 + ceil((11 + 1)/7) 3 = 11). c: 21 = 5 + 4·3 + 2·3 goes beyond 20.
    assert_eq!(responses(&tasks, &[release(1)]), [Some(6), Some(12), None]);
    // Even so it is known what is the most of it: in 19, ceil(20/7) and ceil(20/12) jobs of 3.
    let late = &predicted(&tasks, &[release(1)], ONE_CORE).tasks[2];
    let why = late.reason.as_deref().unwrap();
    assert!(why.ends_with("overlap its next job; most of it is interference, 15000 us"), "{why}");
    let wide = [task("a", 2, 10, 2), task("b", 1, 40, 5)];
    // b: 2 switches of its own and 2 for each job of a: 7 + ceil(w/10) 4 = 15.
    let switch = cost(Kind::Switch, None, MS);
    assert_eq!(responses(&wide, std::slice::from_ref(&switch)), [Some(4), Some(15)]);
    // With a tick of 1 every 4 and an interrupt of 2 every 50: a: 4 + ceil(8/4) + 2 = 8. b:
    // 7 + ceil(28/10) 4 + ceil(28/4) + 2 = 28.
    let costs = [
        switch,
        every(Kind::Scheduler, None, None, MS, 4 * MS),
        every(Kind::Interrupt, None, Some(Worst::Max), 2 * MS, 50 * MS),
    ];
    assert_eq!(responses(&wide, &costs), [Some(8), Some(28)]);
    let b = &predicted(&wide, &costs, ONE_CORE).tasks[1];
    let safe = b.safe.as_ref().unwrap();
    let terms = [Term::Computation, Term::Interference, Term::Switches, Term::Scheduler];
    assert_eq!(terms.map(|kind| safe.term_ns(kind) / MS), [5, 12, 2, 7]);
    assert_eq!((safe.dominant, safe.term_ns(Term::Interrupts)), (Some(Term::Interference), 2 * MS));
    assert_eq!(b.margin_ns, Some(12 * MS as i64));
    // As printed: 5 + max C = 2 + floor(R/4) + floor(R/50) 2 = 8, and again floor(8/4) = 2: 9.
    let printed = b.as_published.as_ref().unwrap();
    assert_eq!((printed.response_ns / MS, printed.term_ns(Term::Blocking) / MS), (9, 2));
}

#[test]
fn tasks_of_other_cores_do_not_matter() {
    let mut tasks = set_d();
    tasks[0].schedule.core = Some(1);
    assert_eq!(responses(&tasks, &[]), [Some(3), Some(3), Some(8)]);
    let many = PredictedHostConfig { cores: 2, ..ONE_CORE };
    // One that may run anywhere is met everywhere, and may come from the other core late:
    // b: 3 + ceil((12 + 7)/7) 3 = 12.
    tasks[0].schedule.core = None;
    let all = predicted(&tasks, &[], many).tasks;
    let shown: Vec<_> =
        all.iter().map(|one| one.safe.as_ref().map(|s| s.response_ns / MS)).collect();
    assert_eq!(shown, [Some(3), Some(12), None]);
    assert_eq!(responses(&tasks, &[]), [Some(3), Some(6), Some(20)], "on one core nothing moves");
}

#[test]
fn what_rests_on_a_late_task_of_all_cores_has_no_bound() {
    let mut tasks = vec![task("a", 3, 10, 5), task("b", 2, 100, 1)];
    tasks.push(Task { deadline_ns: MS, ..task("late", 4, 10, 2) });
    for task in &mut tasks {
        task.schedule.core = None;
    }
    let all = predicted(&tasks, &[], PredictedHostConfig { cores: 2, ..ONE_CORE });
    let verdicts: Vec<_> = all.tasks.iter().map(|task| task.verdict).collect();
    assert_eq!(verdicts, [Verdict::Unschedulable; 3]);
    assert!(all.tasks[1].reason.as_ref().unwrap().contains("misses its deadline"));
    assert!(all.tasks[2].safe.is_some(), "its own bound is known");
    assert_eq!(all.findings.iter().filter(|one| one.severity == Severity::Error).count(), 3);
}

#[test]
fn deadlines_come_first_and_are_judged_by_density_where_that_is_better() {
    let deadline = |name, period, worst| Task {
        schedule: SchedulingSpec { policy: Policy::Deadline, priority: 0, core: None },
        ..task(name, 0, period, worst)
    };
    let low = task("low", 99, 100, 10);
    let all = predicted(&[deadline("x", 10, 5), deadline("y", 30, 12), low], &[], ONE_CORE).tasks;
    // Any order: x: 5 + 12 is beyond 10. By density 5/10 + 12/30 = 0.9.
    assert_eq!(all[0].method, CyclePredictMethod::Density);
    assert_eq!(all[0].safe.as_ref().map(|safe| safe.response_ns), Some(10 * MS));
    assert_eq!(
        (all[1].method, all[1].verdict),
        (CyclePredictMethod::Response, Verdict::Schedulable)
    );
    // 10 + 5 ceil(w/10) + 12 ceil(w/30) = 84: 10 + 45 + 36 = 91, 10 + 50 + 48 is beyond.
    assert_eq!(all[2].before, ["x", "y"]);
    assert_eq!(all[2].verdict, Verdict::Unschedulable);
    let tick = every(Kind::Scheduler, None, None, MS, 5 * MS);
    let less = predicted(&[deadline("x", 10, 5), deadline("y", 30, 12)], &[tick], ONE_CORE).tasks;
    assert_eq!(less[0].verdict, Verdict::Unschedulable, "the tick leaves too little");
}

#[test]
fn windows_of_a_task_that_waits_are_summed_up() {
    let step =
        |ms, barrier| Superstep { compute: ComputeAmount::Ns(ms * MS), message: None, barrier };
    let mut waiting = task("w", 1, 100, 0);
    waiting.work = TaskWork::Steps(vec![step(5, true), step(5, false)]);
    waiting.worst_ns = None;
    let tasks = [waiting, task("a", 2, 10, 2)];
    let two = PredictedHostConfig { nodes: 2, ..ONE_CORE };
    let costs = [message(64, MS, MS / 2)];
    let all = predicted(&tasks, &costs, two).tasks;
    // 5 + 2 for the barrier + ceil(w/10) 2 = 9, and 5 + 2 = 7.
    assert_eq!(all[0].safe.as_ref().map(|safe| safe.response_ns / MS), Some(16));
    assert_eq!(all[0].as_published.as_ref().map(|one| one.response_ns / MS), Some(13));
    let none = predicted(&tasks, &[], two);
    assert_eq!(none.tasks[0].verdict, Verdict::Unknown);
    assert_eq!((none.tasks[0].safe.as_ref(), none.tasks[0].utilisation), (None, None));
    assert_eq!(none.tasks[1].verdict, Verdict::Schedulable);
    assert!(none.findings.iter().any(|one| one.code == FindingCode::CostMissing));
    assert_eq!(predicted(&tasks, &[], ONE_CORE).tasks[0].verdict, Verdict::Schedulable);
}

#[test]
fn the_basis_of_a_bound_is_reported() {
    let codes = |tasks: &[Task], costs: &[CyclePredictCost], machine| -> Vec<FindingCode> {
        predicted(tasks, costs, machine).findings.iter().map(|finding| finding.code).collect()
    };
    let all = [
        cost(Kind::Switch, None, 1),
        release(0),
        every(Kind::Scheduler, Some(0), None, 1, MS),
        every(Kind::Interrupt, Some(0), Some(Worst::Max), 1, MS),
    ];
    assert_eq!(codes(&set_d()[..1], &all, ONE_CORE), []);
    let absent = codes(&set_d()[..1], &[], ONE_CORE);
    assert_eq!(absent, [FindingCode::CostMissing; 4]);
    let mut over = set_d();
    over[0].worst_ns = Some(7 * MS);
    let found = codes(&over, &all, ONE_CORE);
    assert!(
        found.contains(&FindingCode::CoreOverloaded)
            && found.contains(&FindingCode::TaskUnschedulable)
    );
    let throttled = PredictedHostConfig { real_time_share: Some(0.3), ..ONE_CORE };
    assert_eq!(codes(&set_d()[..1], &all, throttled), [FindingCode::RealTimeThrottled]);
    let mut other = set_d();
    other.truncate(1);
    other[0].schedule = SchedulingSpec { policy: Policy::Other, priority: 0, core: None };
    let machine = PredictedHostConfig { cores: 4, ..ONE_CORE };
    assert_eq!(codes(&other, &all, machine), [FindingCode::BoundConditional; 2]);
    other[0].schedule.core = Some(3);
    assert!(codes(&other, &all, machine).contains(&FindingCode::CostUncertain));
}

fn schedule() -> impl Strategy<Value = SchedulingSpec> {
    let policies = vec![Policy::Fifo, Policy::Fifo, Policy::Rr, Policy::Other, Policy::Deadline];
    (select(policies), 1..4_u8, prop::option::of(0..2_usize)).prop_map(
        |(policy, priority, core)| SchedulingSpec {
            policy,
            priority: if policy.has_priority() { priority } else { 0 },
            core: core.filter(|_| policy != Policy::Deadline),
        },
    )
}

fn work() -> impl Strategy<Value = TaskWork> {
    let message = prop::option::of((
        1..2_000_u64,
        select(&[MessageDestination::All, MessageDestination::Next][..]),
    ));
    let step =
        (1..15_u64, message, any::<bool>()).prop_map(|(units, message, barrier)| Superstep {
            compute: ComputeAmount::Ns(units * 10_000),
            message: message.map(|(bytes, to)| SuperstepMessage { bytes, to }),
            barrier,
        });
    prop::collection::vec(step, 1..4).prop_map(TaskWork::Steps)
}

/// Sets of a few tasks in steps of 10 us, seldom with more work than time.
pub(super) fn tasks() -> impl Strategy<Value = Vec<Task>> {
    let task = (20..200_u64, 5..11_u64, schedule(), work(), 0..6_u64, 0..20_u64).prop_map(
        |(period, tenths, schedule, work, critical, offset)| Task {
            name: String::new(),
            period_ns: period * 10_000,
            deadline_ns: period * tenths * 1_000,
            offset_ns: offset * 10_000,
            schedule,
            work,
            worst_ns: None,
            critical_ns: critical * 10_000,
        },
    );
    prop::collection::vec(task, 1..6).prop_map(|mut tasks| {
        for (at, task) in tasks.iter_mut().enumerate() {
            task.name = format!("t{at}");
        }
        tasks
    })
}

/// Costs in steps of 10 us: a tick, interrupts, late releases, messages.
pub(super) fn costs() -> impl Strategy<Value = Vec<CyclePredictCost>> {
    let us = |units: u64| units * 10_000;
    (0..2_u64, 0..5_u64, (1..3_u64, 10..40_u64), (1..6_u64, 50..200_u64), 0..6_u64).prop_map(
        move |(switch, release, tick, interrupt, message_units)| {
            let max = Some(Worst::Max);
            vec![
                cost(Kind::Switch, None, us(switch)),
                cost(Kind::Release, None, us(release)),
                every(Kind::Scheduler, None, None, us(tick.0), us(tick.1)),
                every(Kind::Interrupt, None, max, us(interrupt.0), us(interrupt.1)),
                message(1_000, us(message_units), us(message_units) / 2),
            ]
        },
    )
}

fn response(bound: Option<&CyclePredictBound>) -> u64 {
    bound.map_or(u64::MAX, |bound| bound.response_ns)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn the_safe_bound_is_no_shorter_than_the_printed_form(
        tasks in tasks(), costs in costs(), nodes in 1..4_u32, cores in 1..3_usize,
    ) {
        let machine = PredictedHostConfig { nodes, cores, real_time_share: None };
        for task in predicted(&tasks, &costs, machine).tasks {
            // By density there is no sum that could be compared.
            let Some(safe) = task.safe.filter(|safe| safe.rounds > 0) else { continue };
            let sum: u64 = safe.terms.iter().map(|term| term.ns).sum();
            prop_assert_eq!(safe.response_ns, sum);
            let printed = task.as_published.expect("it has an end where the safe bound has");
            prop_assert!(printed.response_ns <= safe.response_ns, "{}", task.name);
        }
    }

    #[test]
    fn bounds_grow_with_every_cost(
        tasks in tasks(), costs in costs(), which in 0..5_usize, nodes in 1..4_u32,
        cores in 1..3_usize,
    ) {
        let machine = PredictedHostConfig { nodes, cores, real_time_share: None };
        let before = predicted(&tasks, &costs, machine).tasks;
        let mut longer = costs.clone();
        longer[which].ns += 10_000;
        let mut longer_task = tasks.clone();
        longer_task[0].critical_ns += 10_000;
        if let TaskWork::Steps(steps) = &mut longer_task[0].work {
            steps[0].compute = ComputeAmount::Ns(400_000);
        }
        for after in [
            predicted(&tasks, &longer, machine).tasks,
            predicted(&longer_task, &costs, machine).tasks,
        ] {
            for (before, after) in before.iter().zip(after) {
                prop_assert!(
                    response(before.safe.as_ref()) <= response(after.safe.as_ref()),
                    "{before:?}\n{after:?}"
                );
            }
        }
    }
}
