//! A server's state on the terminal, anew each second. What is laid out is a pure function of two
//! answers of the server; here stand the asking, the terminal and the keys.

use std::io::{self, IsTerminal};
use std::path::Path;
use std::time::{Duration, Instant};

use horolog_server::status;
use horolog_sys::signal::{BlockedSignals, Signal};
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::text::Line;
use ratatui::widgets::Paragraph;
use serde_json::Value;

use crate::failure::Failure;

/// How often the server is asked.
const EVERY: Duration = Duration::from_secs(1);
/// How often is looked for a signal meanwhile.
const LOOK: Duration = Duration::from_millis(100);

/// Lays out the later of two answers of a server, for so many columns.
pub(crate) type Lay = fn(columns: usize, before: &Value, now: &Value) -> Vec<Line<'static>>;

/// Complains where there is nothing to draw on.
pub(crate) fn needs_a_terminal() -> Result<(), Failure> {
    if io::stdout().is_terminal() && io::stdin().is_terminal() {
        return Ok(());
    }
    Err(Failure::usage("--live draws on a terminal, and this is none; leave it out"))
}

/// Shows the server at `path` until `q` is pressed or a signal asks for the end.
pub(crate) fn run(path: &Path, lay: Lay) -> Result<(), Failure> {
    let first = ask(path)?;
    let ends = BlockedSignals::block(&[Signal::Interrupt, Signal::Terminate, Signal::HangUp])
        .map_err(Failure::environment)?;
    let mut terminal = ratatui::try_init().map_err(Failure::environment)?;
    let shown = show(path, &mut terminal, &ends, first, lay);
    // A terminal that is gone needs no restoring.
    let _ = ratatui::try_restore();
    shown
}

fn show(
    path: &Path,
    terminal: &mut ratatui::DefaultTerminal,
    ends: &BlockedSignals,
    first: Value,
    lay: Lay,
) -> Result<(), Failure> {
    let (mut before, mut now) = (first.clone(), first);
    let (mut screen, mut then) = (Screen::default(), Instant::now() + EVERY);
    loop {
        let draw = |frame: &mut Frame<'_>| screen.draw(frame, lay, &before, &now);
        terminal.draw(draw).map_err(Failure::environment)?;
        match next(&mut screen, then, ends).map_err(Failure::environment)? {
            Next::Draw => {}
            Next::End => return Ok(()),
            Next::Ask => {
                before = std::mem::replace(&mut now, ask(path)?);
                then = Instant::now() + EVERY;
            }
        }
    }
}

/// What comes next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    /// The server is asked again.
    Ask,
    /// The same is drawn again, from another line on or in another size.
    Draw,
    End,
}

/// Waits until then, or for a key, another size of the terminal or a signal.
fn next(screen: &mut Screen, then: Instant, ends: &BlockedSignals) -> io::Result<Next> {
    loop {
        let wait = then.saturating_duration_since(Instant::now());
        if ends.wait(Duration::ZERO)?.is_some() {
            return Ok(Next::End);
        }
        if wait.is_zero() {
            return Ok(Next::Ask);
        }
        if event::poll(wait.min(LOOK))? {
            return Ok(screen.event(&event::read()?));
        }
    }
}

/// What is seen of the lines.
#[derive(Default)]
struct Screen {
    /// Lines above it.
    first: usize,
    /// Lines that it has.
    rows: usize,
}

impl Screen {
    fn draw(&mut self, frame: &mut Frame<'_>, lay: Lay, before: &Value, now: &Value) {
        let rows = [Constraint::Fill(1), Constraint::Length(1)];
        let [top, bottom] = Layout::vertical(rows).areas(frame.area());
        let columns = usize::from(top.width);
        let lines = lay(columns, before, now).into_iter();
        let lines: Vec<_> = lines.flat_map(|line| within(line, columns)).collect();
        (self.rows, self.first) =
            (top.height.into(), self.first.min(lines.len().saturating_sub(top.height.into())));
        let last = lines.len().min(self.first + self.rows);
        let keys = if self.rows < lines.len() {
            format!("q ends; lines {} to {last} of {}: ↑ ↓ PgUp PgDn", self.first + 1, lines.len())
        } else {
            "q ends; anew each second".to_owned()
        };
        let seen: Vec<_> = lines.into_iter().take(last).skip(self.first).collect();
        frame.render_widget(Paragraph::new(seen), top);
        frame.render_widget(Paragraph::new(keys), bottom);
    }

    fn event(&mut self, event: &Event) -> Next {
        let Event::Key(key) = event else { return Next::Draw };
        let page = self.rows.saturating_sub(1).max(1);
        self.first = match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return Next::End,
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                return Next::End;
            }
            KeyCode::Up => self.first.saturating_sub(1),
            KeyCode::Down => self.first.saturating_add(1),
            KeyCode::PageUp => self.first.saturating_sub(page),
            KeyCode::PageDown => self.first.saturating_add(page),
            KeyCode::Home => 0,
            KeyCode::End => usize::MAX,
            _ => self.first,
        };
        Next::Draw
    }
}

/// A line, broken at blanks where it is longer than that.
fn within(line: Line<'static>, columns: usize) -> Vec<Line<'static>> {
    if line.width() <= columns {
        return vec![line];
    }
    let text = line.to_string();
    let indent = text.len() - text.trim_start().len();
    let mut lines = vec![" ".repeat(indent)];
    for word in text.split_whitespace() {
        let last = lines.len() - 1;
        let has_words = lines[last].len() > indent + 2 * usize::from(last > 0);
        let length = lines[last].chars().count() + usize::from(has_words) + word.chars().count();
        if has_words && length > columns {
            lines.push(format!("{}{word}", " ".repeat(indent + 2)));
        } else {
            lines[last].push_str(if has_words { " " } else { "" });
            lines[last].push_str(word);
        }
    }
    lines.into_iter().map(|text| Line::styled(text, line.style)).collect()
}

/// The state of the server at `path`.
pub(crate) fn ask(path: &Path) -> Result<Value, Failure> {
    let text = status::ask(path)?;
    serde_json::from_str(&text).map_err(|error| {
        Failure::environment(format!("{} answers no JSON: {error}", path.display()))
    })
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::KeyEvent;
    use serde_json::json;

    use super::*;

    fn counted(_: usize, _: &Value, _: &Value) -> Vec<Line<'static>> {
        (1..=30).map(|number| Line::from(format!("line {number}."))).collect()
    }

    fn drawn(screen: &mut Screen, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(60, height)).unwrap();
        terminal.draw(|frame| screen.draw(frame, counted, &json!({}), &json!({}))).unwrap();
        terminal.backend().to_string()
    }

    fn press(screen: &mut Screen, code: KeyCode) -> Next {
        screen.event(&Event::Key(KeyEvent::from(code)))
    }

    #[test]
    fn lines_beyond_the_screen_are_told_of_and_reached() {
        let mut screen = Screen::default();
        let text = drawn(&mut screen, 11);
        assert!(text.contains("line 10.") && !text.contains("line 11."), "{text}");
        assert!(text.contains("lines 1 to 10 of 30"), "{text}");
        for (key, begin) in [
            (KeyCode::Down, 2),
            (KeyCode::PageDown, 11),
            (KeyCode::End, 21),
            (KeyCode::Down, 21),
            (KeyCode::PageUp, 12),
            (KeyCode::Up, 11),
            (KeyCode::Home, 1),
            (KeyCode::Up, 1),
        ] {
            assert_eq!(press(&mut screen, key), Next::Draw);
            let text = drawn(&mut screen, 11);
            assert!(
                text.contains(&format!("lines {begin} to {} of", begin + 9)),
                "{key:?}: {text}"
            );
        }
        assert!(drawn(&mut screen, 40).contains("anew each second"));
    }

    #[test]
    fn q_escape_and_control_c_end_it() {
        let mut screen = Screen::default();
        assert_eq!(press(&mut screen, KeyCode::Char('q')), Next::End);
        assert_eq!(press(&mut screen, KeyCode::Esc), Next::End);
        assert_eq!(press(&mut screen, KeyCode::Char('c')), Next::Draw);
        let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(screen.event(&Event::Key(control_c)), Next::End);
    }

    #[test]
    fn a_long_line_loses_no_word() {
        let lines = within(Line::from("  clock: synchronised, stratum 2; page 50 ms old"), 24);
        let texts: Vec<_> = lines.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["  clock: synchronised,", "    stratum 2; page 50", "    ms old"]);
    }
}
