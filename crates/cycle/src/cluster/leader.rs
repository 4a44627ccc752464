//! The leader's side: those who join, and each of them as a node of the run.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use horolog_record::Host;

use super::Clock;
use super::message::{ENTRIES_MAX, FromLeader, FromMember, PROTOCOL, TaskState, read};
use super::responder::Responder;
use crate::entry::Entry;
use crate::node::{Answer, Go, LINE_MAX, Order, Ready};

/// A member that says nothing for so long is gone.
const SILENCE: Duration = Duration::from_secs(5);
/// What a newcomer may take to say who it is.
const HELLO: Duration = Duration::from_secs(5);
/// How often is looked for newcomers.
const LOOK: Duration = Duration::from_millis(20);
/// Messages of a member that wait, at most; it waits with the next one then.
const WAITING_MAX: usize = 256;

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
    clock_unknown: Option<String>,
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

    /// Waits until so many have joined. `look` is told how many, and says whether to end; it is
    /// `None` then.
    pub(crate) fn gather(
        &self,
        count: usize,
        look: &mut dyn FnMut(usize) -> bool,
    ) -> Option<Vec<Remote>> {
        let mut members: Vec<Remote> = Vec::new();
        while members.len() < count {
            if look(members.len()) {
                return None;
            }
            match self.listener.accept() {
                // Whoever says nothing that is understood is let go, and the next one taken.
                Ok((stream, address)) => members.extend(Remote::welcome(stream, address, &members)),
                Err(_) => thread::sleep(LOOK),
            }
        }
        Some(members)
    }
}

impl Remote {
    fn welcome(stream: TcpStream, address: SocketAddr, others: &[Self]) -> Option<Self> {
        stream.set_nonblocking(false).ok()?;
        stream.set_nodelay(true).ok()?;
        stream.set_write_timeout(Some(SILENCE)).ok()?;
        let reading = stream.try_clone().ok()?;
        let (to, said) = mpsc::sync_channel(WAITING_MAX);
        let work = move || {
            let mut lines = BufReader::new(reading);
            loop {
                let mut line = String::new();
                match lines.by_ref().take(LINE_MAX).read_line(&mut line) {
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
        let mut remote = Self {
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
        };
        let hello = remote.said.recv_timeout(HELLO).ok()?;
        let FromMember::Hello { protocol, name, host } = hello else { return None };
        let refused = if protocol != PROTOCOL {
            Some(
                "it is of another version than the leader; use the same on all machines".to_owned(),
            )
        } else if !is_name(&name) {
            Some("its name is none; write letters, digits, '-', '_' and '.'".to_owned())
        } else if others.iter().any(|other| other.name == name) {
            Some(format!("there is another node named {name}; give it another --name"))
        } else {
            None
        };
        if let Some(reason) = refused {
            // It is let go either way.
            let _ = remote.say(&FromLeader::Refused(reason));
            return None;
        }
        (remote.name, remote.host) = (name, host);
        Some(remote)
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
    pub(crate) fn answer(&mut self, patience: Duration) -> Result<Ready, String> {
        let until = Instant::now() + patience;
        let mut ready = None;
        loop {
            if let Some(ready) = ready.take_if(|_| self.knows_clock()) {
                return Ok(ready);
            }
            let left = until.saturating_duration_since(Instant::now());
            match self.said.recv_timeout(left) {
                Ok(FromMember::Answer(Answer::Ready(answer))) => {
                    if answer.tasks.len() != self.states.len() {
                        return Err("it has other tasks than it was told".to_owned());
                    }
                    ready = Some(answer);
                }
                Ok(FromMember::Answer(Answer::Failed(why))) => return Err(why),
                Ok(other) => self.heard(other),
                Err(RecvTimeoutError::Timeout) => return Err("it says nothing".to_owned()),
                Err(RecvTimeoutError::Disconnected) => return Err("it is gone".to_owned()),
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
            FromMember::Clock(clock) => self.clocks.push(clock),
            FromMember::ClockUnknown(why) => self.clock_unknown = Some(why),
            // Said before, and once.
            FromMember::Hello { .. } | FromMember::Answer(_) => {}
        }
    }

    /// Takes all that it has said.
    pub(crate) fn listen(&mut self) {
        loop {
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

/// Whether a node may be called so: names stand in tables and files.
pub(crate) fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (1..=32).contains(&name.len()) && name.chars().all(plain)
}
