//! Headless Chromium that renders pages for scenarios: one process, driven over a pair of pipes by
//! its debugging protocol, in its own network namespace without even loopback. It provides pages,
//! keys and pointers; the scenarios contain the assertions.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use horolog_sys::namespace::die_with_parent;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Name of the browser's program.
pub(crate) const PROGRAM: &str = "chromium";
/// Timeout of a response from a browser on a busy host.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout of the exit after `Browser.close`.
const END_TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Arguments: no sandbox, which root cannot use, and no network requests by the browser itself.
const ARGUMENTS: [&str; 14] = [
    "--headless",
    "--no-sandbox",
    "--remote-debugging-pipe",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-component-update",
    "--disable-background-networking",
    "--disable-sync",
    "--disable-breakpad",
    "--disable-crash-reporter",
    "--force-device-scale-factor=1",
];

/// Running browser with one page.
pub(crate) struct Browser {
    child: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    /// Events received since they were last taken.
    events: Vec<Value>,
    calls: u64,
    session: Option<String>,
    _profile: TempDir,
}

impl Browser {
    /// Starts the browser with an empty page of `width` by `height` pixels.
    pub(crate) fn start(width: u32, height: u32) -> Result<Self> {
        let profile = TempDir::new()?;
        // The browser reads commands from descriptor 3 and writes messages to descriptor 4.
        let script = "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null";
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-c", script, "sh", PROGRAM]).args(ARGUMENTS);
        command.arg(format!("--user-data-dir={}", profile.path().display()));
        for home in ["HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"] {
            command.env(home, profile.path());
        }
        let words = File::create(profile.path().join("stderr"))?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(words);
        let mut child = die_with_parent(&mut command).spawn().context("cannot run unshare")?;
        let to = child.stdin.take().context("no pipe")?;
        let from = read_messages(child.stdout.take().context("no pipe")?);
        let (events, calls, session) = (Vec::new(), 0, None);
        let mut browser = Self { child, to, from, events, calls, session, _profile: profile };
        browser.make_page(width, height).context("cannot create a page")?;
        Ok(browser)
    }

    fn make_page(&mut self, width: u32, height: u32) -> Result<()> {
        let target = self.call("Target.createTarget", json!({ "url": "about:blank" }))?;
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = self.call("Target.attachToTarget", attach)?;
        let session = attached["sessionId"].as_str().context("no session")?;
        self.session = Some(session.to_owned());
        for domain in ["Page", "Runtime", "Log", "Network"] {
            self.call(&format!("{domain}.enable"), json!({}))?;
        }
        self.resize(width, height)
    }

    /// Sends a command and waits for its response.
    pub(crate) fn call(&mut self, method: &str, parameters: impl Into<Value>) -> Result<Value> {
        self.calls += 1;
        let mut message =
            json!({ "id": self.calls, "method": method, "params": parameters.into() });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.to.write_all(message.to_string().as_bytes())?;
        self.to.write_all(&[0])?;
        loop {
            let mut answer = self.next().with_context(|| method.to_owned())?;
            if answer["id"] != self.calls {
                self.events.push(answer);
            } else if answer["error"].is_object() {
                bail!("{method}: {}", answer["error"]["message"]);
            } else {
                return Ok(answer["result"].take());
            }
        }
    }

    fn next(&mut self) -> Result<Value> {
        self.from.recv_timeout(TIMEOUT).map_err(|_| anyhow!("no message from the browser"))
    }

    /// Opens a file and waits until it is loaded.
    pub(crate) fn open(&mut self, file: &Path) -> Result<()> {
        self.events.clear();
        let url = format!("file://{}", file.display());
        let opened = self.call("Page.navigate", json!({ "url": url }))?;
        ensure!(opened["errorText"].is_null(), "{url}: {}", opened["errorText"]);
        let is_loaded = |event: &Value| event["method"] == "Page.loadEventFired";
        while !self.events.iter().any(is_loaded) {
            let event = self.next()?;
            self.events.push(event);
        }
        Ok(())
    }

    /// Evaluates a JavaScript expression in the page.
    pub(crate) fn evaluate(&mut self, expression: &str) -> Result<Value> {
        let query =
            json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let mut response = self.call("Runtime.evaluate", query)?;
        ensure!(response["exceptionDetails"].is_null(), "{}", response["exceptionDetails"]);
        Ok(response["result"]["value"].take())
    }

    /// Takes the errors of the page since it was opened, including requests for anything but the
    /// page.
    pub(crate) fn take_errors(&mut self) -> Vec<String> {
        let events = std::mem::take(&mut self.events);
        events.iter().filter_map(page_error).collect()
    }

    /// Resizes the page.
    pub(crate) fn resize(&mut self, width: u32, height: u32) -> Result<()> {
        let size = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false,
        });
        self.call("Emulation.setDeviceMetricsOverride", size)?;
        self.settle()
    }

    /// Waits until pending changes are rendered.
    fn settle(&mut self) -> Result<()> {
        const FRAMES: &str = "new Promise((done) => requestAnimationFrame(() => \
                              requestAnimationFrame(() => requestAnimationFrame(done))))";
        self.evaluate(FRAMES).map(drop)
    }

    /// Emulates a medium (`screen` or `print`) and a colour scheme (`light` or `dark`).
    pub(crate) fn emulate_media(&mut self, media: &str, scheme: &str) -> Result<()> {
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        let parameters = json!({ "media": media, "features": features });
        self.call("Emulation.setEmulatedMedia", parameters)?;
        self.settle()
    }

    /// Moves, presses or releases the pointer (`mouseMoved`, `mousePressed`, `mouseReleased`).
    pub(crate) fn pointer(&mut self, what: &str, at: [f64; 2], clicks: u32) -> Result<()> {
        let button = if what == "mouseMoved" && clicks == 0 { "none" } else { "left" };
        let event = json!({
            "type": what, "x": at[0], "y": at[1], "button": button, "clickCount": clicks,
            "buttons": u32::from(clicks > 0),
        });
        self.call("Input.dispatchMouseEvent", event).map(drop)
    }

    /// Presses and releases a key.
    pub(crate) fn key(&mut self, key: &str, code: u32) -> Result<()> {
        for what in ["rawKeyDown", "keyUp"] {
            let event = json!({
                "type": what, "key": key, "code": key, "windowsVirtualKeyCode": code,
            });
            self.call("Input.dispatchKeyEvent", event)?;
        }
        Ok(())
    }

    /// Writes a screenshot of the whole page to a file.
    pub(crate) fn screenshot(&mut self, file: &Path) -> Result<()> {
        let parameters = json!({ "captureBeyondViewport": true });
        let shot = self.call("Page.captureScreenshot", parameters)?;
        let bytes = STANDARD.decode(shot["data"].as_str().context("no screenshot")?)?;
        Ok(std::fs::write(file, bytes)?)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        self.session = None;
        // On this command the browser also ends its child processes.
        let _ = self.call("Browser.close", json!({}));
        let began = Instant::now();
        while began.elapsed() < END_TIMEOUT && matches!(self.child.try_wait(), Ok(None)) {
            thread::sleep(POLL_INTERVAL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a channel of the browser's messages, which a thread reads.
fn read_messages(pipe: ChildStdout) -> Receiver<Value> {
    let (to, from) = mpsc::channel();
    thread::spawn(move || {
        for message in BufReader::new(pipe).split(0) {
            let parsed = message.ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
            let Some(parsed) = parsed else { return };
            if to.send(parsed).is_err() {
                return;
            }
        }
    });
    from
}

/// Returns the error that an event reports, if any.
fn page_error(event: &Value) -> Option<String> {
    let parameters = &event["params"];
    match event["method"].as_str()? {
        "Runtime.exceptionThrown" => Some(parameters["exceptionDetails"].to_string()),
        "Runtime.consoleAPICalled" => Some(parameters["args"].to_string()),
        // These include violations of the content security policy.
        "Log.entryAdded" => Some(parameters["entry"].to_string()),
        "Network.requestWillBeSent" if parameters["type"] != "Document" => {
            Some(format!("the page requests {}", parameters["request"]["url"]))
        }
        _ => None,
    }
}
