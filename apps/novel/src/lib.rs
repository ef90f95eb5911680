//! Novels, chapters and scenes, and the tasks that write about them.
