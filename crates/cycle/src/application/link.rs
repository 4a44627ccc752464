//! A node's link to the others: messages with what the plan does to them, and what the node notices
//! of the others by what comes and what does not.

use std::collections::VecDeque;

use horolog_record::CycleTestNotice as Kind;
use horolog_time::{Monotonic, Timestamp};

use super::fault::Faults;
use super::plan::{Plan, Stage};
use crate::entry::Entry;
use crate::node::mesh::{Mesh, Place};
use crate::task::Message;

/// Messages that were given up and may come yet, at most.
const GIVEN_UP_MAX: usize = 1_024;

/// Something that was noticed: what, of which node, how often, and how many before were none.
pub(super) type Told<'a> = &'a mut dyn FnMut(Kind, Option<u16>, u32, u32);

/// The others, as one node sees them.
pub(super) struct Link<'a> {
    mesh: Mesh,
    own: u16,
    plan: &'a Plan,
    pub(super) faults: Faults<'a>,
    given_up: VecDeque<(u16, Place)>,
}

impl<'a> Link<'a> {
    pub(super) fn new(mesh: Mesh, plan: &'a Plan, own: u16) -> Self {
        Self { mesh, own, plan, faults: Faults::new(plan, own), given_up: VecDeque::new() }
    }

    /// Hears what has come since, and whether nothing is heard of somebody any longer.
    pub(super) fn listen(&mut self, cycle: u64, told: Told<'_>) {
        self.mesh.listen();
        // Where nobody is to say anything, nobody is silent.
        let meets = self.plan.stages.iter().any(|stage| stage.message.is_some() || stage.barrier);
        for node in (0..self.plan.nodes).filter(|node| *node != self.own) {
            // Before the first period nobody has said anything.
            let silent = cycle.saturating_sub(self.mesh.newest(node).unwrap_or(0));
            let is_silent = meets && silent > u64::from(self.plan.silent_after);
            let Some(account) = self.mesh.account() else { continue };
            let ignored = &mut account.ignored[usize::from(node)];
            if is_silent && !*ignored {
                told(Kind::NodeSilent, Some(node), 1, 0);
            }
            *ignored = is_silent;
        }
        self.came(told);
    }

    /// What of a stage is between nodes. Says which faults were injected, each as often as it was.
    pub(super) fn meet(
        &mut self,
        stage: &Stage,
        place: Place,
        (due_ns, limit): (u64, Timestamp<Monotonic>),
        entry: &mut Entry,
        told: Told<'_>,
    ) -> Vec<u16> {
        let mut injected = Vec::new();
        if let Some(bytes) = stage.message {
            injected = self.decide(due_ns, stage);
            let message = Message { bytes, to: stage.to };
            self.mesh.exchange(place, message, limit).of_messages(entry);
            self.give_up(place, told);
            self.came(told);
        }
        if stage.barrier {
            self.mesh.meet(place, limit).of_barrier(entry);
            self.came(told);
        }
        injected
    }

    /// Decides what becomes of the next message to each node that gets one.
    fn decide(&mut self, due_ns: u64, stage: &Stage) -> Vec<u16> {
        let Some(account) = self.mesh.account() else { return Vec::new() };
        let nodes = self.plan.nodes;
        let next = (self.own + 1) % nodes;
        let mut injected = Vec::new();
        for node in (0..nodes).filter(|node| *node != self.own) {
            let gets = match stage.to {
                crate::task::Audience::All => true,
                crate::task::Audience::Next => node == next,
            };
            if gets {
                let (fate, fault) = self.faults.fate(due_ns);
                account.fates[usize::from(node)] = fate;
                injected.extend(fault);
            }
        }
        injected
    }

    /// Tells whose messages did not come to an exchange.
    fn give_up(&mut self, place: Place, told: Told<'_>) {
        let Some(account) = self.mesh.account() else { return };
        for node in std::mem::take(&mut account.missing) {
            told(Kind::MessageMissing, Some(node), 1, 0);
            self.given_up.push_back((node, place));
            if self.given_up.len() > GIVEN_UP_MAX {
                self.given_up.pop_front();
            }
        }
    }

    /// Looks at the messages that came: those that were long on their way, and those that were
    /// given up before.
    fn came(&mut self, told: Told<'_>) {
        let Some(account) = self.mesh.account() else { return };
        for came in std::mem::take(&mut account.came) {
            let stage = self.plan.stages.get(usize::from(came.place.1));
            if stage.is_some_and(|stage| came.way_ns > stage.late_after_ns) {
                told(Kind::MessageLate, Some(came.node), 1, 0);
            }
            let was = self.given_up.iter().position(|one| *one == (came.node, came.place));
            if let Some(at) = was {
                self.given_up.remove(at);
                told(Kind::MessageMissing, Some(came.node), 0, 1);
            }
        }
    }
}
