//! Leader's side of a cluster: members that join, and each of them as a node of the run.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use horolog_record::Host;

use super::NodeClockOffset;
use super::message::{
    ENTRIES_MAX, LeaderMessage, MEMBER_LINE_MAX, MemberMessage, PROTOCOL, TaskState, read,
};
use super::responder::ClusterResponder;
use crate::entry::PeriodEntry;
use crate::node::{NodeOrder, NodeReady, NodeReply, NodeStart};
use crate::run::child::{CALLED_OFF, NoAnswer, receive};

/// Timeout of a member from which no message arrives.
const MEMBER_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of a pending member's hello.
const HELLO: Duration = Duration::from_secs(5);
/// Interval of the checks for pending members.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Waiting messages of a member, at most; the member waits with the next one.
const WAITING_MAX: usize = 256;
/// Pending members, at most; beyond that the oldest is disconnected.
const PENDING_MAX: usize = 64;
/// Maximum number of stored measurements of a clock.
const CLOCKS_MAX: usize = 1_024;

/// Listener for members, and their time server.
#[derive(Debug)]
pub(crate) struct Leader {
    listener: TcpListener,
    /// Address on which it listens.
    pub(crate) address: SocketAddr,
    _clock: ClusterResponder,
}

/// Node on another host.
#[derive(Debug)]
pub(crate) struct RemoteNode {
    /// Its name, as reported by itself.
    pub(crate) name: String,
    /// Its host.
    pub(crate) host: Host,
    /// Its address.
    pub(crate) address: SocketAddr,
    stream: TcpStream,
    messages: Receiver<MemberMessage>,
    last_received: Instant,
    entries: Vec<Vec<PeriodEntry>>,
    states: Vec<TaskState>,
    clocks: Vec<NodeClockOffset>,
    /// Reason for which its clock could not be measured in the latest attempt, if it failed.
    pub(crate) clock_unknown: Option<String>,
    ended: Option<String>,
}

impl Leader {
    /// Listens on this address.
    pub(crate) fn listen(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address, _clock: ClusterResponder::start(address)? })
    }

    /// Waits until this number has joined, and returns them in the order of their names, since the
    /// order of arrival is random. `look` receives the present number, and returns true to end; the
    /// result is `None` then.
    pub(crate) fn accept_members(
        &self,
        count: usize,
        is_over: &mut dyn FnMut(usize) -> bool,
    ) -> Option<Vec<RemoteNode>> {
        let (mut members, mut pending) = (Vec::<RemoteNode>::new(), VecDeque::new());
        while members.len() < count {
            if is_over(members.len()) {
                let why = "not all other nodes have joined, and the wait ended";
                for member in &mut members {
                    member.cancel(why);
                }
                return None;
            }
            self.accept(&mut pending);
            for _ in 0..pending.len() {
                let Some(pending_member) = pending.pop_front() else { break };
                match pending_member.greet(&members) {
                    JoinOutcome::Member(remote) if members.len() < count => members.push(*remote),
                    JoinOutcome::Pending(unfinished) => pending.push_back(unfinished),
                    // An invalid member, or one too many.
                    JoinOutcome::Member(_) | JoinOutcome::LetGo => {}
                }
            }
            thread::sleep(POLL_INTERVAL);
        }
        members.sort_by(|one, other| by_number(&one.name).cmp(&by_number(&other.name)));
        Some(members)
    }

    /// Accepts the waiting connections without waiting for any hello, so that an idle connection
    /// does not delay the others.
    fn accept(&self, pending: &mut VecDeque<PendingMember>) {
        for _ in 0..PENDING_MAX {
            let Ok((stream, address)) = self.listener.accept() else { return };
            // A connection that cannot be set up is closed.
            let Some(remote) = RemoteNode::new(stream, address) else { continue };
            if pending.len() == PENDING_MAX {
                pending.pop_front();
            }
            pending.push_back(PendingMember {
                remote: Box::new(remote),
                until: Instant::now() + HELLO,
            });
        }
    }
}

/// Connection that has not identified itself yet.
struct PendingMember {
    remote: Box<RemoteNode>,
    until: Instant,
}

/// Outcome of a pending member.
enum JoinOutcome {
    /// It is a member.
    Member(Box<RemoteNode>),
    /// It has not sent its hello yet.
    Pending(PendingMember),
    /// It is not a member, and its connection is closed.
    LetGo,
}

impl PendingMember {
    fn greet(mut self, members: &[RemoteNode]) -> JoinOutcome {
        match self.remote.messages.try_recv() {
            Ok(MemberMessage::Hello { protocol, name, host }) => {
                if let Some(reason) = refusal(protocol, &name, members) {
                    // It is disconnected either way.
                    let _ = self.remote.send_message(&LeaderMessage::Refused(reason));
                    return JoinOutcome::LetGo;
                }
                (self.remote.name, self.remote.host) = (name, host);
                JoinOutcome::Member(self.remote)
            }
            Err(TryRecvError::Empty) if Instant::now() < self.until => JoinOutcome::Pending(self),
            Ok(_) | Err(_) => JoinOutcome::LetGo,
        }
    }
}

/// Returns the reason for which a pending member is refused, if it is.
fn refusal(protocol: u32, name: &str, members: &[RemoteNode]) -> Option<String> {
    if protocol != PROTOCOL {
        Some("its version differs from the leader's; use the same on all hosts".to_owned())
    } else if !is_name(name) {
        Some("its name is invalid; use letters, digits, '-', '_' and '.'".to_owned())
    } else if members.iter().any(|other| other.name == name) {
        Some(format!("another node is named {name}; choose another --name"))
    } else {
        None
    }
}

impl RemoteNode {
    /// Makes a pending member from a connection.
    fn new(stream: TcpStream, address: SocketAddr) -> Option<Self> {
        stream.set_nonblocking(false).ok()?;
        stream.set_nodelay(true).ok()?;
        stream.set_write_timeout(Some(MEMBER_TIMEOUT)).ok()?;
        let reading = stream.try_clone().ok()?;
        let (to, messages) = mpsc::sync_channel(WAITING_MAX);
        let work = move || {
            let mut lines = BufReader::new(reading);
            loop {
                let mut line = String::new();
                match lines.by_ref().take(MEMBER_LINE_MAX).read_line(&mut line) {
                    Ok(1..) => {}
                    // It is gone, which the timeout detects.
                    _ => return,
                }
                let Some(message) = read::<MemberMessage>(&line) else { return };
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
            messages,
            last_received: Instant::now(),
            entries: Vec::new(),
            states: Vec::new(),
            clocks: Vec::new(),
            clock_unknown: None,
            ended: None,
        })
    }

    fn send_message(&mut self, message: &LeaderMessage) -> io::Result<()> {
        writeln!(self.stream, "{}", serde_json::to_string(message)?)?;
        self.stream.flush()
    }

    /// Sends its order for the next run.
    pub(crate) fn send_order(&mut self, order: &NodeOrder) -> io::Result<()> {
        let tasks = order.set.tasks().len();
        self.entries = vec![Vec::new(); tasks];
        self.states = vec![TaskState::default(); tasks];
        (self.ended, self.clock_unknown) = (None, None);
        self.clocks.clear();
        self.send_message(&LeaderMessage::Order(order.clone()))
    }

    /// Waits until it is ready and has reported its clock.
    pub(crate) fn await_ready(
        &mut self,
        timeout: Duration,
        is_over: &dyn Fn() -> bool,
    ) -> Result<NodeReady, String> {
        let until = Instant::now() + timeout;
        let mut ready = None;
        loop {
            if let Some(ready) = ready.take_if(|_| self.knows_clock()) {
                return Ok(ready);
            }
            match receive(&self.messages, until, is_over) {
                Ok(MemberMessage::Answer(NodeReply::Ready(answer))) => {
                    if answer.tasks.len() != self.states.len() {
                        return Err("its tasks differ from the order".to_owned());
                    }
                    ready = Some(answer);
                }
                Ok(MemberMessage::Answer(NodeReply::Failed(why))) => return Err(why),
                Ok(other) => self.last_received(other),
                Err(NoAnswer::Over) => return Err(CALLED_OFF.to_owned()),
                Err(NoAnswer::Long) => return Err("it does not answer".to_owned()),
                Err(NoAnswer::Gone) => return Err("its connection was closed".to_owned()),
            }
        }
    }

    fn knows_clock(&self) -> bool {
        !self.clocks.is_empty() || self.clock_unknown.is_some()
    }

    /// Returns the measurements of its clock in their order, or the reason for their absence.
    pub(crate) fn clocks(&self) -> Result<&[NodeClockOffset], &str> {
        match &self.clock_unknown {
            Some(why) if self.clocks.is_empty() => Err(why),
            _ => Ok(&self.clocks),
        }
    }

    pub(crate) fn send_start(&mut self, go: &NodeStart) -> io::Result<()> {
        self.last_received = Instant::now();
        self.send_message(&LeaderMessage::Go(go.clone()))
    }

    /// Requests it to end early. If it cannot be reached, it is gone already.
    pub(crate) fn stop(&mut self) {
        let _ = self.send_message(&LeaderMessage::Stop);
    }

    /// Sends the reason for which nothing begins. If it cannot be reached, it is gone already.
    pub(crate) fn cancel(&mut self, why: &str) {
        let _ = self.send_message(&LeaderMessage::CalledOff(why.to_owned()));
    }

    fn last_received(&mut self, message: MemberMessage) {
        self.last_received = Instant::now();
        match message {
            MemberMessage::Entries { task, words } => {
                let Some(entries) = self.entries.get_mut(task) else { return };
                let read = words.iter().take(ENTRIES_MAX).filter_map(PeriodEntry::from_words);
                entries.extend(read);
            }
            MemberMessage::State { tasks, ended } => {
                if tasks.len() == self.states.len() {
                    self.states = tasks;
                }
                self.ended = ended.or(self.ended.take());
            }
            MemberMessage::Clock(clock) => keep(&mut self.clocks, clock),
            MemberMessage::ClockUnknown(why) => self.clock_unknown = Some(why),
            // These are sent once, and earlier.
            MemberMessage::Hello { .. } | MemberMessage::Answer(_) => {}
        }
    }

    /// Takes its waiting messages; their number is bounded, and the member waits with further ones.
    pub(crate) fn listen(&mut self) {
        for _ in 0..WAITING_MAX {
            match self.messages.try_recv() {
                Ok(message) => self.last_received(message),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    self.ended.get_or_insert_with(|| "by closing the connection".to_owned());
                    return;
                }
            }
        }
        if self.last_received.elapsed() > MEMBER_TIMEOUT {
            self.ended.get_or_insert_with(|| "without notice, or its network failed".to_owned());
        }
    }

    pub(crate) fn take(&mut self, task: usize) -> Vec<PeriodEntry> {
        self.entries.get_mut(task).map(std::mem::take).unwrap_or_default()
    }

    pub(crate) fn state(&self, task: usize) -> TaskState {
        self.states.get(task).copied().unwrap_or_default()
    }

    pub(crate) fn ended(&self) -> Option<String> {
        self.ended.clone()
    }
}

impl Drop for RemoteNode {
    fn drop(&mut self) {
        // The reading thread shares the connection, and ends by this. Closing a closed connection
        // fails harmlessly.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// Records a measurement of a clock. If there are too many, every other one is removed, but not the
/// first, so that the rest still covers the whole time.
fn keep(clocks: &mut Vec<NodeClockOffset>, clock: NodeClockOffset) {
    if clocks.len() == CLOCKS_MAX {
        let mut at = 0;
        clocks.retain(|_| {
            at += 1;
            at % 2 == 1
        });
    }
    clocks.push(clock);
}

/// Returns the sort key of a name: `node2` is before `node10`.
fn by_number(name: &str) -> (&str, usize, &str, &str) {
    let words = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let number = name[words.len()..].trim_start_matches('0');
    (words, number.len(), number, name)
}

/// Returns true if this is a valid node name: names stand in tables and files.
pub(crate) fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (1..=32).contains(&name.len()) && name.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn hello(name: &str) -> String {
        let hello = MemberMessage::Hello {
            protocol: PROTOCOL,
            name: name.to_owned(),
            host: Host::default(),
        };
        serde_json::to_string(&hello).unwrap() + "\n"
    }

    /// More than are kept say nothing, and one says half of what it should.
    #[test]
    fn idle_connections_do_not_keep_other_members_out() {
        let leader = Leader::listen((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let connect = || TcpStream::connect(leader.address).unwrap();
        let idle: Vec<_> = (0..PENDING_MAX + 3).map(|_| connect()).collect();
        let (mut half, mut wrong, mut first, mut second) =
            (connect(), connect(), connect(), connect());
        half.write_all(&hello("half").as_bytes()[..20]).unwrap();
        wrong.write_all(b"\"who\"\n").unwrap();
        first.write_all(hello("first").as_bytes()).unwrap();
        second.write_all(hello("second").as_bytes()).unwrap();
        let begun = Instant::now();
        let members = leader.accept_members(2, &mut |_| begun.elapsed() > HELLO).unwrap();
        let names: Vec<_> = members.iter().map(|member| member.name.as_str()).collect();
        assert_eq!(names, ["first", "second"]);
        // The others are let go, and the threads that read from them end.
        for mut stream in idle.into_iter().chain([half, wrong]) {
            stream.set_read_timeout(Some(MEMBER_TIMEOUT)).unwrap();
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
        let members = leader.accept_members(names.len(), &mut |_| begun.elapsed() > HELLO).unwrap();
        let names: Vec<_> = members.iter().map(|member| member.name.as_str()).collect();
        assert_eq!(names, ["7", "node1", "node02", "node10", "other"]);
    }

    #[test]
    fn a_member_of_another_version_or_without_a_name_is_refused() {
        assert_eq!(refusal(PROTOCOL, "one", &[]), None);
        let refused = |protocol, name| refusal(protocol, name, &[]).unwrap();
        assert!(refused(PROTOCOL + 1, "one").contains("version"));
        assert!(refused(PROTOCOL, "").contains("name"));
    }

    #[test]
    fn a_second_member_of_the_same_name_is_refused() {
        let leader = Leader::listen((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let connect = || {
            let mut stream = TcpStream::connect(leader.address).unwrap();
            stream.write_all(hello("one").as_bytes()).unwrap();
            BufReader::new(stream)
        };
        let mut both = [connect(), connect()];
        let begun = Instant::now();
        let members = leader.accept_members(2, &mut |_| begun.elapsed() > 10 * POLL_INTERVAL);
        assert!(members.is_none());
        let mut lines = [String::new(), String::new()];
        both.iter_mut().zip(&mut lines).for_each(|(one, line)| drop(one.read_line(line)));
        assert!(lines.iter().any(|line| line.contains("another node is named one")), "{lines:?}");
    }

    #[test]
    fn a_member_that_reports_its_clock_all_the_time_does_not_fill_the_memory() {
        let mut clocks = Vec::new();
        for ahead_ns in 0..5_000 {
            keep(&mut clocks, NodeClockOffset { ahead_ns, error_ns: 1 });
            assert!(clocks.len() <= CLOCKS_MAX);
        }
        assert_eq!((clocks[0].ahead_ns, clocks[clocks.len() - 1].ahead_ns), (0, 4_999));
        assert!(clocks.is_sorted_by_key(|clock| clock.ahead_ns) && clocks.len() > CLOCKS_MAX / 2);
    }
}
