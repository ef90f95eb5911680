//! Splits a text into chapters and scenes.
//!
//! - A line with `Chapter` and a number (`CHAPTER II.`, `Chapter 3: The Lamp`), or one that starts
//!   with `#`, begins a chapter. The title is the rest of the line after the number; without a
//!   rest, it is the line itself.
//! - The text before the first chapter is a chapter of its own, unless it is empty. A text without
//!   chapters is one chapter.
//! - A line of only three or more `*`, `-` or `=` (also `* * *`), or two empty lines, end a scene.
//! - A scene longer than [`SCENE_BYTES`] is cut at the last paragraph that fits, so that a provider
//!   can read it at once.

/// The longest scene in bytes: some 3,000 tokens, which leaves a small model room to answer.
pub const SCENE_BYTES: usize = 12_000;
/// The most scenes of a novel: with 500 bytes each, they fill the largest request.
pub const SCENES: usize = 2_000;
/// The longest title in characters. Its column has room for no more.
pub const TITLE_CHARACTERS: usize = 200;

/// A chapter of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chapter {
    /// The title, from its first line.
    pub title: String,
    /// The texts of its scenes, at least one.
    pub scenes: Vec<String>,
}

/// Splits a text. Every word is in one scene, except for the lines that begin chapters and end
/// scenes.
pub fn split(text: &str) -> Vec<Chapter> {
    let mut chapters = Vec::new();
    let mut title = "Beginning".to_owned();
    let mut lines = Vec::new();
    for line in text.lines() {
        if let Some(next) = heading(line) {
            add_chapter(&mut chapters, &title, &lines);
            title = next;
            lines.clear();
        } else {
            lines.push(line.trim_end());
        }
    }

    add_chapter(&mut chapters, &title, &lines);
    chapters
}

fn add_chapter(chapters: &mut Vec<Chapter>, title: &str, lines: &[&str]) {
    let scenes = scenes(lines);
    if !scenes.is_empty() {
        chapters.push(Chapter {
            title: title.chars().take(TITLE_CHARACTERS).collect(),
            scenes,
        });
    }
}

/// The title, if the line begins a chapter.
fn heading(line: &str) -> Option<String> {
    let line = line.trim();
    if let Some(marked) = line.strip_prefix('#') {
        let title = marked.trim_start_matches('#').trim();
        return Some(title_or(title, "Untitled"));
    }

    let (word, rest) = line.split_once(char::is_whitespace)?;
    if !word.eq_ignore_ascii_case("chapter") {
        return None;
    }

    let (number, title) = rest
        .trim()
        .split_once(|end: char| !end.is_alphanumeric())
        .unwrap_or((rest.trim(), ""));
    let is_number = !number.is_empty()
        && (number.bytes().all(|byte| byte.is_ascii_digit())
            || number.bytes().all(|byte| b"IVXLC".contains(&byte)));
    let title = title.trim_matches(|edge: char| edge.is_whitespace() || ".:—–-".contains(edge));

    is_number.then(|| title_or(title, line))
}

fn title_or(title: &str, default: &str) -> String {
    if title.is_empty() {
        default.to_owned()
    } else {
        title.to_owned()
    }
}

fn scenes(lines: &[&str]) -> Vec<String> {
    let mut scenes = Vec::new();
    let mut scene = Vec::new();
    let mut empty = 0;

    for line in lines {
        empty = if line.trim().is_empty() { empty + 1 } else { 0 };
        if is_break(line) || empty == 2 {
            add_scene(&mut scenes, &std::mem::take(&mut scene));
        } else {
            scene.push(*line);
        }
    }

    add_scene(&mut scenes, &scene);
    scenes
}

fn is_break(line: &str) -> bool {
    let mut marks = line.chars().filter(|mark| !mark.is_whitespace());
    let Some(first @ ('*' | '-' | '=')) = marks.next() else {
        return false;
    };

    let rest: Vec<char> = marks.collect();
    rest.len() >= 2 && rest.iter().all(|mark| *mark == first)
}

fn add_scene(scenes: &mut Vec<String>, lines: &[&str]) {
    let whole = lines.join("\n");
    let mut rest = whole.trim();
    while !rest.is_empty() {
        let (scene, after) = rest.split_at(cut(rest));
        scenes.push(scene.trim().to_owned());
        rest = after.trim();
    }
}

/// Where to end a scene: after the last paragraph that fits, else after the last line, word or
/// character.
fn cut(text: &str) -> usize {
    if text.len() <= SCENE_BYTES {
        return text.len();
    }

    let most = text.floor_char_boundary(SCENE_BYTES);
    let head = &text[..most];
    ["\n\n", "\n", " "]
        .iter()
        .find_map(|end| head.rfind(end))
        .filter(|at| *at > 0)
        .unwrap_or(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(text: &str) -> Vec<(String, usize)> {
        split(text)
            .into_iter()
            .map(|chapter| (chapter.title, chapter.scenes.len()))
            .collect()
    }

    #[test]
    fn a_heading_begins_a_chapter() {
        let text = "Chapter 1: The Lamp\nOne.\n\nCHAPTER II.\nTwo.\n# A third\nThree.\nChapter \
             and verse.\n";
        let expected = [("The Lamp", 1), ("CHAPTER II.", 1), ("A third", 1)];
        assert_eq!(
            shape(text),
            expected.map(|(title, scenes)| (title.to_owned(), scenes))
        );
        assert_eq!(split(text)[2].scenes[0], "Three.\nChapter and verse.");
    }

    #[test]
    fn a_text_without_chapters_is_one_chapter_and_an_empty_text_has_none() {
        assert_eq!(shape("Some words."), [("Beginning".to_owned(), 1)]);
        assert_eq!(shape(" \n\n* * *\n\n Chapter 1\n"), []);
    }

    #[test]
    fn stars_or_a_double_blank_line_end_a_scene() {
        assert_eq!(
            shape("a\n\nb\n* * *\nc\n\n\nd\n---\n===\ne"),
            [("Beginning".to_owned(), 4)]
        );
    }

    #[test]
    fn a_long_scene_is_cut_at_a_paragraph_and_loses_no_word() {
        let paragraph = "word ".repeat(300);
        let text = format!("{}\n\n", paragraph.trim()).repeat(20);
        let scenes = &split(&text)[0].scenes;
        assert!(scenes.len() > 1 && scenes.iter().all(|scene| scene.len() <= SCENE_BYTES));

        let words: usize = scenes
            .iter()
            .map(|scene| scene.split_whitespace().count())
            .sum();
        assert_eq!(words, 6_000);
        let unbroken = "ü".repeat(SCENE_BYTES);
        assert!(
            split(&unbroken)[0]
                .scenes
                .iter()
                .all(|scene| scene.len() <= SCENE_BYTES)
        );
    }
}
