//! The statements of the application, read once, with parameters marked as each database wants it.

use std::sync::LazyLock;

/// One statement: `?` marks a parameter on SQLite and MySQL, `$1` on PostgreSQL.
#[derive(Debug)]
pub(super) struct Statement {
    pub(super) question_marks: &'static str,
    pub(super) numbered: LazyLock<String>,
}

macro_rules! statements {
    ($($name:ident = $file:literal;)*) => {
        $(pub(super) static $name: Statement = Statement {
            question_marks: include_str!(concat!("../../sql/", $file, ".sql")),
            numbered: LazyLock::new(|| numbered(include_str!(concat!("../../sql/", $file, ".sql")))),
        };)*
        #[cfg(test)]
        pub(super) static ALL: &[&Statement] = &[$(&$name),*];
    };
}

statements! {
    DELETE_NOVEL = "delete_novel";
    FIND_IMPORT = "find_import";
    GET_NOVEL = "get_novel";
    GET_SCENE = "get_scene";
    GET_SOURCE = "get_source";
    INSERT_CHAPTER = "insert_chapter";
    INSERT_NOVEL = "insert_novel";
    INSERT_SCENE = "insert_scene";
    LAST_SCENE = "last_scene";
    LIST_CHAPTERS = "list_chapters";
    LIST_NOVELS = "list_novels";
    LIST_SCENES = "list_scenes";
    SAVE_SUMMARY = "save_summary";
    SAVE_TEXT = "save_text";
}

/// `?` as `$1`, `$2`, …: the statements have no text in quotes.
fn numbered(sql: &str) -> String {
    let mut parts = sql.split('?');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.enumerate().fold(first, |text, (number, part)| {
        format!("{text}${}{part}", number + 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_numbered_in_their_order() {
        assert_eq!(numbered("a = ? AND b = ?"), "a = $1 AND b = $2");
    }

    #[test]
    fn no_statement_has_text_in_quotes() {
        assert!(
            ALL.iter()
                .all(|statement| !statement.question_marks.contains('\''))
        );
    }
}
