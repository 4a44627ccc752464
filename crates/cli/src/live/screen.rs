//! Scrolling view of lines that change between updates, with a status line for its keys. Pure,
//! except that it draws in a frame of `ratatui`.

use ratatui::Frame;
use ratatui::crossterm::event::{Event, KeyCode, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

/// Action that a terminal event requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ScrollViewAction {
    /// Draw again: the scroll position or the terminal's size may have changed.
    Draw,
    /// End the view.
    End,
}

/// Scroll position of a view that fills the terminal.
#[derive(Default)]
pub(crate) struct ScrollView {
    /// Number of lines above the visible ones.
    first_line: usize,
    /// Height of the view in lines, without the status line.
    rows: usize,
}

impl ScrollView {
    /// Draws the lines that `layout` returns for the width in columns, and a status line with the
    /// keys. `update_text` describes the update interval; it is shown if all lines fit.
    pub(crate) fn draw(
        &mut self,
        frame: &mut Frame<'_>,
        update_text: &str,
        layout: impl FnOnce(usize) -> Vec<Line<'static>>,
    ) {
        let rows = [Constraint::Fill(1), Constraint::Length(1)];
        let [top, bottom] = Layout::vertical(rows).areas(frame.area());
        let columns = usize::from(top.width);
        let lines = layout(columns).into_iter();
        let lines: Vec<_> = lines.flat_map(|line| wrap_line(line, columns)).collect();
        (self.rows, self.first_line) =
            (top.height.into(), self.first_line.min(lines.len().saturating_sub(top.height.into())));
        let last = lines.len().min(self.first_line + self.rows);
        let keys = if self.rows < lines.len() {
            format!(
                "q ends; lines {} to {last} of {}: ↑ ↓ PgUp PgDn",
                self.first_line + 1,
                lines.len()
            )
        } else {
            format!("q ends; {update_text}")
        };
        let visible: Vec<_> = lines.into_iter().take(last).skip(self.first_line).collect();
        frame.render_widget(Paragraph::new(visible), top);
        frame.render_widget(Paragraph::new(keys), bottom);
    }

    /// Handles a terminal event: `q`, Esc and Ctrl-C end the view; the arrow, page, Home and End
    /// keys scroll.
    pub(crate) fn handle_event(&mut self, event: &Event) -> ScrollViewAction {
        let Event::Key(key) = event else { return ScrollViewAction::Draw };
        let page = self.rows.saturating_sub(1).max(1);
        self.first_line = match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return ScrollViewAction::End,
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                return ScrollViewAction::End;
            }
            KeyCode::Up => self.first_line.saturating_sub(1),
            KeyCode::Down => self.first_line.saturating_add(1),
            KeyCode::PageUp => self.first_line.saturating_sub(page),
            KeyCode::PageDown => self.first_line.saturating_add(page),
            KeyCode::Home => 0,
            KeyCode::End => usize::MAX,
            _ => self.first_line,
        };
        ScrollViewAction::Draw
    }
}

/// Wraps a line at blanks if it is wider than `columns`; continuation lines are indented by two
/// more columns.
fn wrap_line(line: Line<'static>, columns: usize) -> Vec<Line<'static>> {
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

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::KeyEvent;

    use super::*;

    fn counted(_: usize) -> Vec<Line<'static>> {
        (1..=30).map(|number| Line::from(format!("line {number}."))).collect()
    }

    fn drawn(screen: &mut ScrollView, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(60, height)).unwrap();
        terminal.draw(|frame| screen.draw(frame, "updated every second", counted)).unwrap();
        terminal.backend().to_string()
    }

    fn press(screen: &mut ScrollView, code: KeyCode) -> ScrollViewAction {
        screen.handle_event(&Event::Key(KeyEvent::from(code)))
    }

    #[test]
    fn lines_beyond_the_screen_are_counted_and_reachable() {
        let mut screen = ScrollView::default();
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
            assert_eq!(press(&mut screen, key), ScrollViewAction::Draw);
            let text = drawn(&mut screen, 11);
            assert!(
                text.contains(&format!("lines {begin} to {} of", begin + 9)),
                "{key:?}: {text}"
            );
        }
        assert!(drawn(&mut screen, 40).contains("updated every second"));
    }

    #[test]
    fn q_escape_and_control_c_end_it() {
        let mut screen = ScrollView::default();
        assert_eq!(press(&mut screen, KeyCode::Char('q')), ScrollViewAction::End);
        assert_eq!(press(&mut screen, KeyCode::Esc), ScrollViewAction::End);
        assert_eq!(press(&mut screen, KeyCode::Char('c')), ScrollViewAction::Draw);
        let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(screen.handle_event(&Event::Key(control_c)), ScrollViewAction::End);
    }

    #[test]
    fn a_long_line_loses_no_word() {
        let lines = wrap_line(Line::from("  clock: synchronised, stratum 2; page 50 ms old"), 24);
        let texts: Vec<_> = lines.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["  clock: synchronised,", "    stratum 2; page 50", "    ms old"]);
    }
}
