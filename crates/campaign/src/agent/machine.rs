//! What an agent does, as a pure function: what it sees and hears comes in, what is to be done goes
//! out, in order. It holds one campaign at a time and remembers the last few. It reads no clock and
//! touches nothing, so every order of events can be played in a test.
//!
//! An instruction is not an event but a state that is looked at: the same one may be seen any
//! number of times, and some may never be seen.

use std::collections::{BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use crate::fault::counted;
use crate::instruction::{Instruction, InstructionError};
use crate::message::Content;
use crate::order::{Ending, Job, LEAD_NS_MAX, News, Order, Outcome, Word};
use crate::policy::Policy;
use crate::{AgentName, CampaignId, JobId};

/// How long an order may wait for its instant before the agent is free again.
pub const WAIT_MAX_NS: u64 = 300_000_000_000;
/// How long after the deadline of its jobs a campaign is over, whatever its controller says.
pub const LINGER_NS: u64 = 30_000_000_000;
/// Campaigns that are over and not to be begun once more.
const REMEMBERED: usize = 32;

/// Who an agent is, and what it may do.
#[derive(Clone, Debug)]
pub struct Character {
    /// Its name.
    pub name: AgentName,
    /// Its version of horolog.
    pub version: String,
    /// What it may run.
    pub policy: Policy,
}

/// Something that an agent does.
#[derive(Clone, PartialEq, Debug)]
pub enum Act {
    /// Tell a campaign's controller, without fail.
    Tell(CampaignId, Content),
    /// Tell it what may be lost.
    Murmur(CampaignId, News),
    /// Make processes for an order and start its services.
    Begin(Order),
    /// Start the other jobs at this instant, UTC in ns since 1970.
    Start(i64),
    /// End the services.
    Finish,
    /// End everything.
    Abandon,
    /// Let go of an order that is over.
    Leave,
    /// Keep [`Machine::memory`] as it is when this is done: all that was decided with it is there.
    Keep,
    /// Say a line to the agent's owner.
    Say(String),
}

/// What an agent has to know after its own restart.
#[derive(Clone, Default, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Memory {
    /// Its start, counted.
    pub incarnation: u64,
    /// Campaigns that are over, the last one last.
    pub over: VecDeque<CampaignId>,
    /// The campaign that was being worked for, its jobs that had no outcome, and their instant.
    pub current: Option<Left>,
}

/// What was being worked for.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Left {
    /// The campaign.
    pub campaign: CampaignId,
    /// Its jobs without an outcome.
    pub jobs: BTreeSet<JobId>,
    /// The instant that jobs were to start at.
    pub at_ns: Option<i64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// Services are being started.
    Preparing,
    /// The instant is not known.
    Waiting,
    /// It is.
    Started,
    /// Everything is to end.
    Ending,
}

#[derive(Clone, Debug)]
struct Current {
    order: Order,
    stage: Stage,
    open: BTreeSet<JobId>,
    at_ns: Option<i64>,
    /// The last word that was acted upon.
    word: Option<Word>,
    /// The last word that was seen.
    seen: Option<Word>,
    /// Monotonic; when it was taken on or, later, when its instant was.
    since_ns: u64,
}

/// The two clocks, in ns.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// UTC since 1970.
    pub utc_ns: i64,
    /// Since some instant, never set.
    pub monotonic_ns: u64,
}

/// An agent.
#[derive(Clone, Debug)]
pub struct Machine {
    character: Character,
    over: VecDeque<CampaignId>,
    incarnation: u64,
    current: Option<Current>,
}

impl Machine {
    /// An agent that was started at this time (ms since 1970), with what it remembers of its
    /// earlier life. What had been begun then is over: each job without an outcome gets one that
    /// says so.
    #[must_use]
    pub fn new(character: Character, memory: Memory, now_ms: u64) -> (Self, Vec<Act>) {
        let incarnation = now_ms.max(memory.incarnation + 1);
        let mut machine = Self { character, over: memory.over, incarnation, current: None };
        let mut acts = Vec::new();
        if let Some(left) = memory.current {
            acts.push(Act::Say(format!(
                "this agent ended while it worked for {}; of its jobs, {} had no result",
                left.campaign,
                left.jobs.len()
            )));
            for job in left.jobs {
                let reason = "the agent ended before it did and was started again".to_owned();
                let ending = Ending::Interrupted { reason };
                let outcome = machine.outcome(&left.campaign, job, ending, left.at_ns);
                acts.push(Act::Tell(left.campaign.clone(), outcome));
            }
            machine.is_over(left.campaign);
        }
        acts.push(Act::Keep);
        (machine, acts)
    }

    /// Its start, counted: later ones are greater.
    #[must_use]
    pub const fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// The campaign that it works for.
    #[must_use]
    pub fn busy(&self) -> Option<&CampaignId> {
        self.current.as_ref().map(|current| &current.order.campaign)
    }

    /// What it has to know after a restart.
    #[must_use]
    pub fn memory(&self) -> Memory {
        let current = self.current.as_ref().map(|current| Left {
            campaign: current.order.campaign.clone(),
            jobs: current.open.clone(),
            at_ns: current.at_ns,
        });
        Memory { incarnation: self.incarnation, over: self.over.clone(), current }
    }

    fn is_over(&mut self, campaign: CampaignId) {
        self.over.push_back(campaign);
        while self.over.len() > REMEMBERED {
            self.over.pop_front();
        }
    }

    fn outcome(
        &self,
        campaign: &CampaignId,
        job: JobId,
        ending: Ending,
        intended_ns: Option<i64>,
    ) -> Content {
        let agent = self.character.name.clone();
        let outcome = Outcome::new(campaign.clone(), agent, job, ending);
        Content::Outcome(Box::new(Outcome { intended_ns, ..outcome }))
    }

    /// Looks at what lies at the broker for this agent. `room` says whether there is any for
    /// results.
    #[must_use]
    pub fn look(
        &mut self,
        seen: Result<Option<Instruction>, InstructionError>,
        room: Result<(), String>,
        now: Now,
    ) -> Vec<Act> {
        match seen {
            Ok(None) => self.without_order(),
            Ok(Some(Instruction { order, word })) => {
                if self.busy() == Some(&order.campaign) {
                    return self.word(word, now);
                }
                if self.over.contains(&order.campaign) || !is_beginning(word) {
                    return Vec::new();
                }
                let mut acts = self.take_on(order, room, now);
                acts.extend(self.word(word, now));
                acts
            }
            Err(InstructionError::Foreign { campaign, reason }) => self.refuse(campaign, reason),
            Err(InstructionError::Unreadable) => Vec::new(),
        }
    }

    /// The order was taken back: nothing is begun any more, but what has been started goes on to
    /// its end, since a broker that lost what it kept says the same.
    fn without_order(&mut self) -> Vec<Act> {
        match &mut self.current {
            Some(current) if matches!(current.stage, Stage::Preparing | Stage::Waiting) => {
                current.stage = Stage::Ending;
                vec![Act::Abandon]
            }
            _ => Vec::new(),
        }
    }

    fn refuse(&mut self, campaign: CampaignId, reason: String) -> Vec<Act> {
        if self.over.contains(&campaign) {
            return Vec::new();
        }
        self.is_over(campaign.clone());
        let said = Act::Say(format!("refused {campaign}: {reason}"));
        let refused = Content::News(News::Refused { reason });
        vec![said, Act::Tell(campaign, refused), Act::Keep]
    }

    fn take_on(&mut self, order: Order, room: Result<(), String>, now: Now) -> Vec<Act> {
        let Character { name, version, policy } = &self.character;
        let busy = self.busy().map(|busy| format!("it works for {busy}; wait for its end"));
        let judged = order.check(name, version).map_err(|fault| fault.to_string());
        let judged = judged.and_then(|()| busy.map_or(Ok(()), Err)).and(room);
        let judged = judged.and_then(|()| policy.judge(&order).map_err(|why| why.to_string()));
        let campaign = order.campaign.clone();
        if let Err(reason) = judged {
            return self.refuse(campaign, reason);
        }
        self.current = Some(Current {
            open: order.jobs.iter().map(|job| job.id.clone()).collect(),
            order: order.clone(),
            stage: Stage::Preparing,
            at_ns: None,
            word: None,
            seen: None,
            since_ns: now.monotonic_ns,
        });
        // It is known before anything is done, so that a restart finds it.
        vec![
            Act::Keep,
            Act::Say(format!("works for {campaign}: {}", counted(order.jobs.len(), "job"))),
            Act::Tell(campaign, Content::News(News::Accepted { at_ns: now.utc_ns })),
            Act::Begin(order),
        ]
    }

    /// Acts upon a word about the present order, once, and on a start only when all is ready.
    fn word(&mut self, word: Option<Word>, now: Now) -> Vec<Act> {
        let Some(current) = &mut self.current else { return Vec::new() };
        current.seen = word;
        if current.word == word || current.stage == Stage::Ending {
            return Vec::new();
        }
        match word {
            None => Vec::new(),
            Some(Word::Start { .. }) if current.stage != Stage::Waiting => Vec::new(),
            Some(Word::Start { at_ns }) => {
                current.word = word;
                current.stage = Stage::Started;
                current.at_ns = Some(at_ns);
                let ahead_ns = at_ns.saturating_sub(now.utc_ns);
                if let Err(reason) = is_possible(ahead_ns) {
                    current.since_ns = now.monotonic_ns;
                    return self.missed(&reason);
                }
                current.since_ns = now.monotonic_ns.saturating_add_signed(ahead_ns);
                vec![Act::Keep, Act::Start(at_ns)]
            }
            // Services end, and so does what was never started: no instant comes after this.
            Some(Word::Finish) if current.stage == Stage::Started => {
                current.word = word;
                vec![Act::Finish]
            }
            Some(Word::Finish | Word::Abandon) => {
                current.word = word;
                current.stage = Stage::Ending;
                vec![Act::Abandon]
            }
        }
    }

    /// The instant cannot be kept. A measurement that begins when others are under way would be
    /// counted as one of theirs, so it does not begin.
    fn missed(&mut self, reason: &str) -> Vec<Act> {
        let Some(current) = &self.current else { return Vec::new() };
        let at_ns = current.at_ns;
        let campaign = current.order.campaign.clone();
        let is_late = |job: &&Job| !job.service && current.open.contains(&job.id);
        let late: Vec<_> = current.order.jobs.iter().filter(is_late).map(|job| &job.id).collect();
        let outcomes = late.into_iter().map(|job| {
            let ending = Ending::Refused { reason: reason.to_owned() };
            (job.clone(), self.outcome(&campaign, job.clone(), ending, at_ns))
        });
        let outcomes: Vec<_> = outcomes.collect();
        let mut acts = vec![Act::Say(format!("{campaign}: {reason}"))];
        for (job, outcome) in outcomes {
            acts.push(Act::Tell(campaign.clone(), outcome));
            acts.extend(self.close(&job));
        }
        // Behind all that is told: what is kept says that it has been.
        acts.push(Act::Keep);
        acts
    }

    /// Hears news of the processes of the present order.
    #[must_use]
    pub fn news(&mut self, news: News, now: Now) -> Vec<Act> {
        let Some(current) = &mut self.current else { return Vec::new() };
        let campaign = current.order.campaign.clone();
        match news {
            News::Ready => {
                let mut acts = vec![Act::Tell(campaign, Content::News(news))];
                if current.stage == Stage::Preparing {
                    current.stage = Stage::Waiting;
                }
                let seen = current.seen;
                acts.extend(self.word(seen, now));
                acts
            }
            News::NotReady { .. } => {
                current.stage = Stage::Ending;
                vec![Act::Tell(campaign, Content::News(news)), Act::Abandon]
            }
            News::Started { .. } | News::Accepted { .. } | News::Refused { .. } => {
                vec![Act::Tell(campaign, Content::News(news))]
            }
            News::Progress { .. } | News::Ended { .. } => vec![Act::Murmur(campaign, news)],
        }
    }

    /// Hears what became of a job of the present order.
    #[must_use]
    pub fn outcome_of(&mut self, outcome: Box<Outcome>) -> Vec<Act> {
        let is_open = |current: &Current| {
            current.order.campaign == outcome.campaign && current.open.contains(&outcome.job)
        };
        if !self.current.as_ref().is_some_and(is_open) {
            return Vec::new();
        }
        let (campaign, job) = (outcome.campaign.clone(), outcome.job.clone());
        // It is told, that is: on the disk, before it is remembered as told.
        let mut acts = vec![Act::Tell(campaign, Content::Outcome(outcome))];
        acts.extend(self.close(&job));
        acts.push(Act::Keep);
        acts
    }

    fn close(&mut self, job: &JobId) -> Vec<Act> {
        let Some(current) = &mut self.current else { return Vec::new() };
        current.open.remove(job);
        if !current.open.is_empty() {
            return Vec::new();
        }
        let campaign = current.order.campaign.clone();
        self.current = None;
        self.is_over(campaign.clone());
        vec![Act::Leave, Act::Say(format!("{campaign} is over here"))]
    }

    /// What time alone brings: an order whose instant never comes is given up, and so are services
    /// that nobody ends.
    #[must_use]
    pub fn tick(&mut self, now: Now) -> Vec<Act> {
        let Some(current) = &mut self.current else { return Vec::new() };
        let max_ns = match current.stage {
            Stage::Preparing | Stage::Waiting => WAIT_MAX_NS,
            Stage::Started => current.order.deadline_ns.saturating_add(LINGER_NS),
            Stage::Ending => return Vec::new(),
        };
        if now.monotonic_ns.saturating_sub(current.since_ns) <= max_ns {
            return Vec::new();
        }
        current.stage = Stage::Ending;
        let campaign = &current.order.campaign;
        vec![
            Act::Say(format!("{campaign}: its controller says nothing more; it is given up")),
            Act::Abandon,
        ]
    }

    /// The agent is to end: what it runs ends first, with the results so far.
    #[must_use]
    pub fn end(&mut self) -> Vec<Act> {
        match &mut self.current {
            Some(current) if current.stage != Stage::Ending => {
                current.stage = Stage::Ending;
                vec![Act::Abandon]
            }
            _ => Vec::new(),
        }
    }
}

/// Whether an instant that is so far ahead can be kept: it has not passed, and an agent is not held
/// for it for ever.
fn is_possible(ahead_ns: i64) -> Result<(), String> {
    let ahead_s = ahead_ns as f64 / 1e9;
    if ahead_ns <= 0 {
        let late_s = -ahead_s;
        return Err(format!(
            "the instant had passed by {late_s:.3} s when this agent was told of it"
        ));
    }
    if ahead_ns > LEAD_NS_MAX {
        let max_s = LEAD_NS_MAX / 1_000_000_000;
        return Err(format!("the instant is {ahead_s:.0} s ahead, and agents wait for {max_s} s"));
    }
    Ok(())
}

/// Whether a campaign may be begun where this is the first word that is seen of it.
const fn is_beginning(word: Option<Word>) -> bool {
    matches!(word, None | Some(Word::Start { .. }))
}

#[cfg(test)]
mod tests;
