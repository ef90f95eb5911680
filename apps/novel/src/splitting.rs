//! How a text becomes chapters and scenes.
//!
//! - A line that says `Chapter` and a number (`CHAPTER II.`, `Chapter 3: The Lamp`), or one that starts with `#`, begins
//!   a chapter. What follows the number on the line is its title; without that, the line itself is.
//! - What stands before the first chapter is a chapter of its own, if it is not empty. A text without chapters is one.
//! - A line of nothing but three or more `*`, `-` or `=` (`* * *` too), or two empty lines, ends a scene.
//! - A scene that is longer than [`SCENE_BYTES`] is cut at the last paragraph that fits: a provider must be able to
//!   read it at once.

/// The longest scene in bytes: some 3,000 tokens, which leaves a small model room to answer.
pub const SCENE_BYTES: usize = 12_000;
/// The most scenes of a novel: at a scene of 500 bytes that is all a request can carry.
pub const SCENES: usize = 2_000;
/// The longest title in characters: what its column takes.
pub const TITLE_CHARACTERS: usize = 200;

/// A chapter of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chapter {
    /// What its first line says.
    pub title: String,
    /// The texts of its scenes; at least one.
    pub scenes: Vec<String>,
}

/// Splits a text. Every word of it is in one scene, but for the lines that name chapters and part scenes.
pub fn split(text: &str) -> Vec<Chapter> {
    let mut chapters = Vec::new();
    let (mut title, mut lines) = ("Beginning".to_owned(), Vec::new());
    for line in text.lines() {
        if let Some(next) = heading(line) {
            close(&mut chapters, &title, &lines);
            (title, lines) = (next, Vec::new());
        } else {
            lines.push(line.trim_end());
        }
    }
    close(&mut chapters, &title, &lines);
    chapters
}

fn close(chapters: &mut Vec<Chapter>, title: &str, lines: &[&str]) {
    let scenes = scenes(lines);
    if !scenes.is_empty() {
        chapters.push(Chapter {
            title: title.chars().take(TITLE_CHARACTERS).collect(),
            scenes,
        });
    }
}

/// The title of the chapter that the line begins, if it begins one.
fn heading(line: &str) -> Option<String> {
    let line = line.trim();
    if let Some(marked) = line.strip_prefix('#') {
        let title = marked.trim_start_matches('#').trim();
        return Some(if title.is_empty() {
            "Untitled".to_owned()
        } else {
            title.to_owned()
        });
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
    is_number.then(|| {
        if title.is_empty() {
            line.to_owned()
        } else {
            title.to_owned()
        }
    })
}

fn scenes(lines: &[&str]) -> Vec<String> {
    let (mut scenes, mut scene, mut empty) = (Vec::new(), Vec::new(), 0);
    for line in lines {
        empty = if line.trim().is_empty() { empty + 1 } else { 0 };
        if is_break(line) || empty == 2 {
            add(&mut scenes, &std::mem::take(&mut scene));
        } else {
            scene.push(*line);
        }
    }
    add(&mut scenes, &scene);
    scenes
}

fn is_break(line: &str) -> bool {
    let bare: String = line
        .chars()
        .filter(|character| !character.is_whitespace())
        .collect();
    bare.len() >= 3
        && ["*", "-", "="]
            .iter()
            .any(|mark| bare.replace(mark, "").is_empty())
}

fn add(scenes: &mut Vec<String>, lines: &[&str]) {
    let whole = lines.join("\n");
    let mut rest = whole.trim();
    while !rest.is_empty() {
        let (scene, after) = rest.split_at(cut(rest));
        scenes.push(scene.trim().to_owned());
        rest = after.trim();
    }
}

/// Where a scene that is too long ends: after the last paragraph that fits, else the last line, word or character.
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
    fn chapters_begin_where_a_line_says_so() {
        let text = "Chapter 1: The Lamp\nOne.\n\nCHAPTER II.\nTwo.\n# A third\nThree.\nChapter and verse.\n";
        let expected = [("The Lamp", 1), ("CHAPTER II.", 1), ("A third", 1)];
        assert_eq!(
            shape(text),
            expected.map(|(title, scenes)| (title.to_owned(), scenes))
        );
        assert_eq!(split(text)[2].scenes[0], "Three.\nChapter and verse.");
    }

    #[test]
    fn a_text_without_chapters_is_one_and_an_empty_one_is_none() {
        assert_eq!(shape("Some words."), [("Beginning".to_owned(), 1)]);
        assert_eq!(shape(" \n\n* * *\n\n Chapter 1\n"), []);
    }

    #[test]
    fn a_line_of_stars_or_two_empty_lines_end_a_scene() {
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
