//! The leader's side: those who join, and each of them as a node of the run.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use horolog_record::Host;

use super::Clock;
use super::message::{
    ENTRIES_MAX, FromLeader, FromMember, MEMBER_LINE_MAX, PROTOCOL, TaskState, read,
};
use super::responder::Responder;
use crate::entry::Entry;
use crate::node::{Answer, Go, Order, Ready};
use crate::run::child::{CALLED_OFF, Silence, said};

/// A member that says nothing for so long is gone.
const SILENCE: Duration = Duration::from_secs(5);
/// What a newcomer may take to say who it is.
const HELLO: Duration = Duration::from_secs(5);
/// How often is looked for newcomers.
const LOOK: Duration = Duration::from_millis(20);
/// Messages of a member that wait, at most; it waits with the next one then.
const WAITING_MAX: usize = 256;
/// Newcomers that have said nothing yet, at most; the first of them is let go then.
const NEWCOMERS_MAX: usize = 64;
/// What is kept of measurements of a clock, at most.
const CLOCKS_MAX: usize = 1_024;

/// Listens for members, and tells them the time.
#[derive(Debug)]
pub(crate) struct Leader {
    listener: TcpListener,
    /// Where it listens.
    pub(crate) address: SocketAddr,
    _clock: Responder,
}

/// A node on another machine.
#[derive(Debug)]
pub(crate) struct Remote {
    /// What it calls itself.
    pub(crate) name: String,
    /// Its machine.
    pub(crate) host: Host,
    /// Where it is.
    pub(crate) address: SocketAddr,
    stream: TcpStream,
    said: Receiver<FromMember>,
    heard: Instant,
    entries: Vec<Vec<Entry>>,
    states: Vec<TaskState>,
    clocks: Vec<Clock>,
    /// Why its clock could not be measured, when that was so at last.
    pub(crate) clock_unknown: Option<String>,
    ended: Option<String>,
}

impl Leader {
    /// Listens at this address.
    pub(crate) fn listen(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address, _clock: Responder::start(address)? })
    }

    /// Waits until so many have joined, and gives them in the order of their names, for who is
    /// there first is chance. `look` is told how many, and says whether to end; it is `None` then.
    pub(crate) fn gather(
        &self,
        count: usize,
        look: &mut dyn FnMut(usize) -> bool,
    ) -> Option<Vec<Remote>> {
        let (mut members, mut newcomers) = (Vec::<Remote>::new(), VecDeque::new());
        while members.len() < count {
            if look(members.len()) {
                let why = "not all others have joined, and they are waited for no longer";
                for member in &mut members {
                    member.call_off(why);
                }
                return None;
            }
            self.accept(&mut newcomers);
            for _ in 0..newcomers.len() {
                let Some(newcomer) = newcomers.pop_front() else { break };
                match newcomer.greet(&members) {
                    Greeted::Member(remote) if members.len() < count => members.push(*remote),
                    Greeted::Silent(newcomer) => newcomers.push_back(newcomer),
                    // Whoever says nothing that is understood, or comes when all are there.
                    Greeted::Member(_) | Greeted::LetGo => {}
                }
            }
            thread::sleep(LOOK);
        }
        members.sort_by(|one, other| by_number(&one.name).cmp(&by_number(&other.name)));
        Some(members)
    }

    /// Takes those who have come. Nobody is waited for: who says nothing keeps no other away.
    fn accept(&self, newcomers: &mut VecDeque<Newcomer>) {
        for _ in 0..NEWCOMERS_MAX {
            let Ok((stream, address)) = self.listener.accept() else { return };
            // One that cannot be read from is let go.
            let Some(remote) = Remote::new(stream, address) else { continue };
            if newcomers.len() == NEWCOMERS_MAX {
                newcomers.pop_front();
            }
            newcomers
                .push_back(Newcomer { remote: Box::new(remote), until: Instant::now() + HELLO });
        }
    }
}

/// Somebody who has come and not said who it is.
struct Newcomer {
    remote: Box<Remote>,
    until: Instant,
}

/// What becomes of a newcomer.
enum Greeted {
    /// It is a member.
    Member(Box<Remote>),
    /// It has said nothing yet.
    Silent(Newcomer),
    /// It is none, and its connection is closed.
    LetGo,
}

impl Newcomer {
    fn greet(mut self, members: &[Remote]) -> Greeted {
        match self.remote.said.try_recv() {
            Ok(FromMember::Hello { protocol, name, host }) => {
                if let Some(reason) = refusal(protocol, &name, members) {
                    // It is let go either way.
                    let _ = self.remote.say(&FromLeader::Refused(reason));
                    return Greeted::LetGo;
                }
                (self.remote.name, self.remote.host) = (name, host);
                Greeted::Member(self.remote)
            }
            Err(TryRecvError::Empty) if Instant::now() < self.until => Greeted::Silent(self),
            Ok(_) | Err(_) => Greeted::LetGo,
        }
    }
}

/// Why a newcomer cannot be a member, if it cannot.
fn refusal(protocol: u32, name: &str, members: &[Remote]) -> Option<String> {
    if protocol != PROTOCOL {
        Some("it is of another version than the leader; use the same on all machines".to_owned())
    } else if !is_name(name) {
        Some("its name is none; write letters, digits, '-', '_' and '.'".to_owned())
    } else if members.iter().any(|other| other.name == name) {
        Some(format!("there is another node named {name}; give it another --name"))
    } else {
        None
    }
}

impl Remote {
    /// Somebody at the other end of a connection, of whom nothing is known yet.
    fn new(stream: TcpStream, address: SocketAddr) -> Option<Self> {
        stream.set_nonblocking(false).ok()?;
        stream.set_nodelay(true).ok()?;
        stream.set_write_timeout(Some(SILENCE)).ok()?;
        let reading = stream.try_clone().ok()?;
        let (to, said) = mpsc::sync_channel(WAITING_MAX);
        let work = move || {
            let mut lines = BufReader::new(reading);
            loop {
                let mut line = String::new();
                match lines.by_ref().take(MEMBER_LINE_MAX).read_line(&mut line) {
                    Ok(1..) => {}
                    // It is gone, which the silence tells.
                    _ => return,
                }
                let Some(message) = read::<FromMember>(&line) else { return };
                if to.send(message).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().name("member".into()).spawn(work).ok()?;
        Some(Self {
            name: String::new(),
            host: Host::default(),
            address,
            stream,
            said,
            heard: Instant::now(),
            entries: Vec::new(),
            states: Vec::new(),
            clocks: Vec::new(),
            clock_unknown: None,
            ended: None,
        })
    }

    fn say(&mut self, message: &FromLeader) -> io::Result<()> {
        writeln!(self.stream, "{}", serde_json::to_string(message)?)?;
        self.stream.flush()
    }

    /// Tells it what to do in the next run.
    pub(crate) fn order(&mut self, order: &Order) -> io::Result<()> {
        let tasks = order.set.tasks().len();
        self.entries = vec![Vec::new(); tasks];
        self.states = vec![TaskState::default(); tasks];
        (self.ended, self.clock_unknown) = (None, None);
        self.clocks.clear();
        self.say(&FromLeader::Order(order.clone()))
    }

    /// Waits until it is ready and has told of its clock.
    pub(crate) fn answer(
        &mut self,
        patience: Duration,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Ready, String> {
        let until = Instant::now() + patience;
        let mut ready = None;
        loop {
            if let Some(ready) = ready.take_if(|_| self.knows_clock()) {
                return Ok(ready);
            }
            match said(&self.said, until, is_over) {
                Ok(FromMember::Answer(Answer::Ready(answer))) => {
                    if answer.tasks.len() != self.states.len() {
                        return Err("it has other tasks than it was told".to_owned());
                    }
                    ready = Some(answer);
                }
                Ok(FromMember::Answer(Answer::Failed(why))) => return Err(why),
                Ok(other) => self.heard(other),
                Err(Silence::Over) => return Err(CALLED_OFF.to_owned()),
                Err(Silence::Long) => return Err("it says nothing".to_owned()),
                Err(Silence::Gone) => return Err("it is gone".to_owned()),
            }
        }
    }

    fn knows_clock(&self) -> bool {
        !self.clocks.is_empty() || self.clock_unknown.is_some()
    }

    /// What is known of its clock, in the order in which it was measured, or why nothing is.
    pub(crate) fn clocks(&self) -> Result<&[Clock], &str> {
        match &self.clock_unknown {
            Some(why) if self.clocks.is_empty() => Err(why),
            _ => Ok(&self.clocks),
        }
    }

    pub(crate) fn go(&mut self, go: &Go) -> io::Result<()> {
        self.heard = Instant::now();
        self.say(&FromLeader::Go(go.clone()))
    }

    /// Tells it to end early. One that does not hear it is gone already.
    pub(crate) fn stop(&mut self) {
        let _ = self.say(&FromLeader::Stop);
    }

    /// Tells it why nothing begins. One that does not hear it is gone already.
    pub(crate) fn call_off(&mut self, why: &str) {
        let _ = self.say(&FromLeader::CalledOff(why.to_owned()));
    }

    fn heard(&mut self, message: FromMember) {
        self.heard = Instant::now();
        match message {
            FromMember::Entries { task, words } => {
                let Some(entries) = self.entries.get_mut(task) else { return };
                let read = words.iter().take(ENTRIES_MAX).filter_map(Entry::from_words);
                entries.extend(read);
            }
            FromMember::State { tasks, ended } => {
                if tasks.len() == self.states.len() {
                    self.states = tasks;
                }
                self.ended = ended.or(self.ended.take());
            }
            FromMember::Clock(clock) => keep(&mut self.clocks, clock),
            FromMember::ClockUnknown(why) => self.clock_unknown = Some(why),
            // Said before, and once.
            FromMember::Hello { .. } | FromMember::Answer(_) => {}
        }
    }

    /// Takes what it has said, as much as could wait: whoever says more has the rest wait.
    pub(crate) fn listen(&mut self) {
        for _ in 0..WAITING_MAX {
            match self.said.try_recv() {
                Ok(message) => self.heard(message),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    self.ended.get_or_insert_with(|| "by leaving".to_owned());
                    return;
                }
            }
        }
        if self.heard.elapsed() > SILENCE {
            self.ended.get_or_insert_with(|| "without a word, or its network did".to_owned());
        }
    }

    pub(crate) fn take(&mut self, task: usize) -> Vec<Entry> {
        self.entries.get_mut(task).map(std::mem::take).unwrap_or_default()
    }

    pub(crate) fn state(&self, task: usize) -> TaskState {
        self.states.get(task).copied().unwrap_or_default()
    }

    pub(crate) fn ended(&self) -> Option<String> {
        self.ended.clone()
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        // The thread that reads from it has the connection too, and ends by this. One that is
        // closed already cannot be closed again.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// Keeps a measurement of a clock. When there are too many, every other one goes, but not the
/// first, so that the rest tells of all the time.
fn keep(clocks: &mut Vec<Clock>, clock: Clock) {
    if clocks.len() == CLOCKS_MAX {
        let mut at = 0;
        clocks.retain(|_| {
            at += 1;
            at % 2 == 1
        });
    }
    clocks.push(clock);
}

/// By what names are ordered: `node2` is before `node10`.
fn by_number(name: &str) -> (&str, usize, &str, &str) {
    let words = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let number = name[words.len()..].trim_start_matches('0');
    (words, number.len(), number, name)
}

/// Whether a node may be called so: names stand in tables and files.
pub(crate) fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (1..=32).contains(&name.len()) && name.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn hello(name: &str) -> String {
        let hello =
            FromMember::Hello { protocol: PROTOCOL, name: name.to_owned(), host: Host::default() };
        serde_json::to_string(&hello).unwrap() + "\n"
    }

    /// More than are kept say nothing, and one says half of what it should.
    #[test]
    fn whoever_says_nothing_keeps_nobody_away() {
        let leader = Leader::listen((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let connect = || TcpStream::connect(leader.address).unwrap();
        let silent: Vec<_> = (0..NEWCOMERS_MAX + 3).map(|_| connect()).collect();
        let (mut half, mut wrong, mut first, mut second) =
            (connect(), connect(), connect(), connect());
        half.write_all(&hello("half").as_bytes()[..20]).unwrap();
        wrong.write_all(b"\"who\"\n").unwrap();
        first.write_all(hello("first").as_bytes()).unwrap();
        second.write_all(hello("second").as_bytes()).unwrap();
        let begun = Instant::now();
        let members = leader.gather(2, &mut |_| begun.elapsed() > HELLO).unwrap();
        let names: Vec<_> = members.iter().map(|member| member.name.as_str()).collect();
        assert_eq!(names, ["first", "second"]);
        // The others are let go, and the threads that read from them end.
        for mut stream in silent.into_iter().chain([half, wrong]) {
            stream.set_read_timeout(Some(SILENCE)).unwrap();
            let read = stream.read(&mut [0; 8]);
            let is_gone = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionReset;
            assert!(read.as_ref().is_ok_and(|len| *len == 0) || read.as_ref().is_err_and(is_gone));
        }
        drop(members);
        assert!(matches!(first.read(&mut [0; 8]), Ok(0)));
    }

    /// Whoever is there first, a node of a name has the same number in each run.
    #[test]
    fn nodes_are_in_the_order_of_their_names() {
        let leader = Leader::listen((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let join = |name: &str| {
            let mut stream = TcpStream::connect(leader.address).unwrap();
            stream.write_all(hello(name).as_bytes()).unwrap();
            stream
        };
        let names = ["node10", "other", "node02", "7", "node1"];
        let _streams = names.map(join);
        let begun = Instant::now();
        let members = leader.gather(names.len(), &mut |_| begun.elapsed() > HELLO).unwrap();
        let names: Vec<_> = members.iter().map(|member| member.name.as_str()).collect();
        assert_eq!(names, ["7", "node1", "node02", "node10", "other"]);
    }

    #[test]
    fn a_newcomer_of_another_version_or_without_a_name_is_refused() {
        assert_eq!(refusal(PROTOCOL, "one", &[]), None);
        let refused = |protocol, name| refusal(protocol, name, &[]).unwrap();
        assert!(refused(PROTOCOL + 1, "one").contains("version"));
        assert!(refused(PROTOCOL, "").contains("name"));
    }

    #[test]
    fn a_name_is_given_once() {
        let leader = Leader::listen((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let connect = || {
            let mut stream = TcpStream::connect(leader.address).unwrap();
            stream.write_all(hello("one").as_bytes()).unwrap();
            BufReader::new(stream)
        };
        let mut both = [connect(), connect()];
        let begun = Instant::now();
        let members = leader.gather(2, &mut |_| begun.elapsed() > 10 * LOOK);
        assert!(members.is_none());
        let mut said = [String::new(), String::new()];
        both.iter_mut().zip(&mut said).for_each(|(one, said)| drop(one.read_line(said)));
        assert!(
            said.iter().any(|said| said.contains("there is another node named one")),
            "{said:?}"
        );
    }

    #[test]
    fn a_member_that_tells_of_its_clock_all_the_time_does_not_fill_the_memory() {
        let mut clocks = Vec::new();
        for ahead_ns in 0..5_000 {
            keep(&mut clocks, Clock { ahead_ns, error_ns: 1 });
            assert!(clocks.len() <= CLOCKS_MAX);
        }
        assert_eq!((clocks[0].ahead_ns, clocks[clocks.len() - 1].ahead_ns), (0, 4_999));
        assert!(clocks.is_sorted_by_key(|clock| clock.ahead_ns) && clocks.len() > CLOCKS_MAX / 2);
    }
}
