-- Made by `make generate` from a migrated database. Do not edit.

CREATE TABLE `artifacts` (
  `id` binary(16) NOT NULL,
  `task_id` binary(16) NOT NULL,
  `attempt` int(11) NOT NULL,
  `artifact_key` varchar(200) NOT NULL,
  `file_name` varchar(255) NOT NULL,
  `content_type` varchar(200) NOT NULL,
  `bytes` bigint(20) NOT NULL,
  `created_at` bigint(20) NOT NULL,
  `expires_at` bigint(20) NOT NULL,
  `sweep_at` bigint(20) DEFAULT NULL,
  `cleaned_at` bigint(20) DEFAULT NULL,
  `failures` int(11) NOT NULL DEFAULT 0,
  PRIMARY KEY (`id`),
  KEY `artifacts_task` (`task_id`),
  KEY `artifacts_sweep` (`sweep_at`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE `attempts` (
  `task_id` binary(16) NOT NULL,
  `attempt` int(11) NOT NULL,
  `outcome` varchar(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  `node_id` binary(16) DEFAULT NULL,
  `host` varchar(200) DEFAULT NULL,
  `started_at` bigint(20) DEFAULT NULL,
  `ended_at` bigint(20) DEFAULT NULL,
  `error` mediumtext DEFAULT NULL,
  PRIMARY KEY (`task_id`,`attempt`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE `count_deltas` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `span_start` bigint(20) NOT NULL,
  `queue` varchar(100) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  `task_type` varchar(100) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  `measure` varchar(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  `label` varchar(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  `bucket` int(11) NOT NULL,
  `n` bigint(20) NOT NULL,
  PRIMARY KEY (`id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE `host_affinity` (
  `task_id` binary(16) NOT NULL,
  `host` varbinary(200) NOT NULL,
  `due_at` bigint(20) NOT NULL,
  PRIMARY KEY (`task_id`),
  KEY `host_affinity_host` (`host`,`task_id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE `idempotency_keys` (
  `owner` varbinary(200) NOT NULL,
  `idempotency_key` varbinary(200) NOT NULL,
  `digest` varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  `task_id` binary(16) NOT NULL,
  `expires_at` bigint(20) NOT NULL,
  PRIMARY KEY (`owner`,`idempotency_key`),
  KEY `idempotency_keys_expires` (`expires_at`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE `lanes` (
  `id` int(11) NOT NULL AUTO_INCREMENT,
  `queue` varchar(100) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  `task_type` varchar(100) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  `priority` smallint(6) NOT NULL CHECK (`priority` between 1 and 10),
  PRIMARY KEY (`id`),
  UNIQUE KEY `queue` (`queue`,`task_type`,`priority`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE `maintenance_leases` (
  `name` varchar(100) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  `node_id` binary(16) DEFAULT NULL,
  `epoch` bigint(20) NOT NULL,
  `leased_until` bigint(20) NOT NULL,
  PRIMARY KEY (`name`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE `nodes` (
  `id` binary(16) NOT NULL,
  `name` varchar(200) NOT NULL,
  `host` varchar(200) NOT NULL,
  `started_at` bigint(20) NOT NULL,
  `heartbeat_at` bigint(20) NOT NULL,
  `lost_at` bigint(20) DEFAULT NULL,
  `serves` mediumtext DEFAULT NULL,
  PRIMARY KEY (`id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE `outbox` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `topic` varchar(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  `task_id` binary(16) NOT NULL,
  `body` longtext NOT NULL,
  `created_at` bigint(20) NOT NULL,
  `leased_until` bigint(20) NOT NULL DEFAULT 0,
  `tries` int(11) NOT NULL DEFAULT 0,
  PRIMARY KEY (`id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE `queues` (
  `name` varchar(100) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  `paused_at` bigint(20) DEFAULT NULL,
  PRIMARY KEY (`name`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE `tasks` (
  `id` binary(16) NOT NULL,
  `parent_id` binary(16) DEFAULT NULL,
  `created_at` bigint(20) NOT NULL,
  `updated_at` bigint(20) NOT NULL,
  `due_at` bigint(20) NOT NULL,
  `started_at` bigint(20) DEFAULT NULL,
  `last_attempt_at` bigint(20) DEFAULT NULL,
  `finished_at` bigint(20) DEFAULT NULL,
  `deadline_at` bigint(20) DEFAULT NULL,
  `expires_at` bigint(20) DEFAULT NULL,
  `timeout_ms` bigint(20) DEFAULT NULL,
  `version` bigint(20) NOT NULL DEFAULT 1,
  `lane` int(11) DEFAULT NULL,
  `attempt` int(11) NOT NULL DEFAULT 0,
  `max_attempts` int(11) NOT NULL DEFAULT 5,
  `retry_count` int(11) NOT NULL DEFAULT 0,
  `snooze_count` int(11) NOT NULL DEFAULT 0,
  `crash_count` int(11) NOT NULL DEFAULT 0,
  `children_total` int(11) NOT NULL DEFAULT 0,
  `children_completed` int(11) NOT NULL DEFAULT 0,
  `children_with_errors` int(11) NOT NULL DEFAULT 0,
  `children_failed` int(11) NOT NULL DEFAULT 0,
  `children_cancelled` int(11) NOT NULL DEFAULT 0,
  `priority` smallint(6) NOT NULL DEFAULT 1,
  `finish_step` tinyint(1) NOT NULL DEFAULT 0,
  `status` varchar(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT 'QUEUED',
  `phase` varchar(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT 'run',
  `owner` varbinary(200) NOT NULL,
  `tier` varchar(200) DEFAULT NULL,
  `task_type` varchar(100) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  `task_key` varbinary(200) DEFAULT NULL,
  `queue` varchar(100) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  `lease_token` binary(16) DEFAULT NULL,
  `node_id` binary(16) DEFAULT NULL,
  `host` varchar(200) DEFAULT NULL,
  `retry_policy` text DEFAULT NULL,
  `parameters` longtext NOT NULL,
  `checkpoint` longtext DEFAULT NULL,
  `progress` longtext DEFAULT NULL,
  `result` longtext DEFAULT NULL,
  `result_url` text DEFAULT NULL,
  `error` mediumtext DEFAULT NULL,
  `memo` longtext DEFAULT NULL,
  `correlation_id` varchar(200) DEFAULT NULL,
  `trace_context` varchar(200) DEFAULT NULL,
  `artifact_expires_at` bigint(20) DEFAULT NULL,
  `artifact_state` varchar(40) DEFAULT NULL,
  `reserve` varbinary(128) DEFAULT '................................................................................................................................',
  PRIMARY KEY (`id`),
  KEY `tasks_claim` (`lane`,`due_at`,`id`),
  KEY `tasks_owner_status` (`owner`,`status`,`id`),
  KEY `tasks_status_type` (`status`,`task_type`,`id`),
  KEY `tasks_key` (`task_key`,`id`),
  KEY `tasks_parent` (`parent_id`,`id`),
  KEY `tasks_expires` (`expires_at`,`id`),
  CONSTRAINT `tasks_lane` CHECK (`lane` is not null = `status` in ('QUEUED','RETRYING'))
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE `task_counts` (
  `span_start` bigint(20) NOT NULL,
  `queue` varchar(100) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  `task_type` varchar(100) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  `measure` varchar(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  `label` varchar(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  `bucket` int(11) NOT NULL,
  `n` bigint(20) NOT NULL,
  PRIMARY KEY (`span_start`,`queue`,`task_type`,`measure`,`label`,`bucket`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE `task_logs` (
  `id` bigint(20) NOT NULL AUTO_INCREMENT,
  `task_id` binary(16) NOT NULL,
  `attempt` int(11) NOT NULL,
  `level` varchar(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  `message` text NOT NULL,
  `logged_at` bigint(20) NOT NULL,
  PRIMARY KEY (`id`),
  KEY `task_logs_task` (`task_id`,`id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE TABLE `tokens` (
  `id` varbinary(100) NOT NULL,
  `digest` char(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  `prefix` varchar(100) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  `owner` varbinary(200) NOT NULL,
  `tier` varchar(100) CHARACTER SET ascii COLLATE ascii_bin DEFAULT NULL,
  `scopes` text CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  `name` varchar(200) NOT NULL,
  `created_at` bigint(20) NOT NULL,
  `expires_at` bigint(20) NOT NULL,
  `last_used_at` bigint(20) DEFAULT NULL,
  `revoked_at` bigint(20) DEFAULT NULL,
  PRIMARY KEY (`id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;

CREATE ALGORITHM=UNDEFINED SQL SECURITY DEFINER VIEW `v_artifacts` AS select lcase(insert(insert(insert(insert(hex(`artifacts`.`id`),21,0,'-'),17,0,'-'),13,0,'-'),9,0,'-')) AS `id`,lcase(insert(insert(insert(insert(hex(`artifacts`.`task_id`),21,0,'-'),17,0,'-'),13,0,'-'),9,0,'-')) AS `task_id`,`artifacts`.`attempt` AS `attempt`,`artifacts`.`artifact_key` AS `artifact_key`,`artifacts`.`file_name` AS `file_name`,`artifacts`.`content_type` AS `content_type`,`artifacts`.`bytes` AS `bytes`,TIMESTAMP'1970-01-01 00:00:00' + interval `artifacts`.`created_at` microsecond AS `created_at`,TIMESTAMP'1970-01-01 00:00:00' + interval `artifacts`.`expires_at` microsecond AS `expires_at`,TIMESTAMP'1970-01-01 00:00:00' + interval `artifacts`.`cleaned_at` microsecond AS `cleaned_at`,`artifacts`.`failures` AS `failures` from `artifacts`;

CREATE ALGORITHM=UNDEFINED SQL SECURITY DEFINER VIEW `v_attempts` AS select lcase(insert(insert(insert(insert(hex(`attempts`.`task_id`),21,0,'-'),17,0,'-'),13,0,'-'),9,0,'-')) AS `task_id`,`attempts`.`attempt` AS `attempt`,`attempts`.`outcome` AS `outcome`,lcase(insert(insert(insert(insert(hex(`attempts`.`node_id`),21,0,'-'),17,0,'-'),13,0,'-'),9,0,'-')) AS `node_id`,`attempts`.`host` AS `host`,TIMESTAMP'1970-01-01 00:00:00' + interval `attempts`.`started_at` microsecond AS `started_at`,TIMESTAMP'1970-01-01 00:00:00' + interval `attempts`.`ended_at` microsecond AS `ended_at`,`attempts`.`error` AS `error` from `attempts` union all select lcase(insert(insert(insert(insert(hex(`t`.`id`),21,0,'-'),17,0,'-'),13,0,'-'),9,0,'-')) AS `Name_exp_1`,`t`.`attempt` AS `attempt`,case `t`.`status` when 'RUNNING' then 'running' when 'CANCELLED' then 'cancelled' when 'COMPLETED' then 'completed' when 'COMPLETED_WITH_ERRORS' then 'completed' else 'failed' end AS `Name_exp_3`,lcase(insert(insert(insert(insert(hex(`t`.`node_id`),21,0,'-'),17,0,'-'),13,0,'-'),9,0,'-')) AS `Name_exp_4`,`t`.`host` AS `host`,TIMESTAMP'1970-01-01 00:00:00' + interval `t`.`last_attempt_at` microsecond AS `Name_exp_6`,TIMESTAMP'1970-01-01 00:00:00' + interval `t`.`finished_at` microsecond AS `Name_exp_7`,`t`.`error` AS `error` from `tasks` `t` where `t`.`attempt` > 0 and `t`.`status` not in ('QUEUED','RETRYING','WAITING') and !exists(select 1 from `attempts` `a` where `a`.`task_id` = `t`.`id` and `a`.`attempt` = `t`.`attempt` limit 1);

CREATE ALGORITHM=UNDEFINED SQL SECURITY DEFINER VIEW `v_counts` AS select `entries`.`queue` AS `queue`,`entries`.`task_type` AS `task_type`,`entries`.`label` AS `status`,sum(`entries`.`n`) AS `tasks` from (select `task_counts`.`queue` AS `queue`,`task_counts`.`task_type` AS `task_type`,`task_counts`.`label` AS `label`,`task_counts`.`n` AS `n` from `task_counts` where `task_counts`.`measure` = 'status' and `task_counts`.`span_start` = 0 union all select `count_deltas`.`queue` AS `queue`,`count_deltas`.`task_type` AS `task_type`,`count_deltas`.`label` AS `label`,`count_deltas`.`n` AS `n` from `count_deltas` where `count_deltas`.`measure` = 'status' and `count_deltas`.`span_start` = 0) `entries` group by `entries`.`queue`,`entries`.`task_type`,`entries`.`label` having sum(`entries`.`n`) <> 0;

CREATE ALGORITHM=UNDEFINED SQL SECURITY DEFINER VIEW `v_dead_letters` AS select lcase(insert(insert(insert(insert(hex(`tasks`.`id`),21,0,'-'),17,0,'-'),13,0,'-'),9,0,'-')) AS `task_id`,convert(`tasks`.`owner` using utf8mb4) AS `owner`,`tasks`.`task_type` AS `task_type`,convert(`tasks`.`task_key` using utf8mb4) AS `task_key`,`tasks`.`queue` AS `queue`,`tasks`.`status` AS `status`,`tasks`.`attempt` AS `attempt`,`tasks`.`retry_count` AS `retry_count`,`tasks`.`crash_count` AS `crash_count`,TIMESTAMP'1970-01-01 00:00:00' + interval `tasks`.`finished_at` microsecond AS `finished_at`,`tasks`.`error` AS `error`,`tasks`.`parameters` AS `parameters` from `tasks` where `tasks`.`status` in ('FAILED','DEAD_LETTER');

CREATE ALGORITHM=UNDEFINED SQL SECURITY DEFINER VIEW `v_logs` AS select lcase(insert(insert(insert(insert(hex(`task_logs`.`task_id`),21,0,'-'),17,0,'-'),13,0,'-'),9,0,'-')) AS `task_id`,`task_logs`.`id` AS `number`,`task_logs`.`attempt` AS `attempt`,`task_logs`.`level` AS `level`,TIMESTAMP'1970-01-01 00:00:00' + interval `task_logs`.`logged_at` microsecond AS `logged_at`,`task_logs`.`message` AS `message` from `task_logs`;

CREATE ALGORITHM=UNDEFINED SQL SECURITY DEFINER VIEW `v_statistics` AS select TIMESTAMP'1970-01-01 00:00:00' + interval `entries`.`span_start` microsecond AS `hour`,`entries`.`queue` AS `queue`,`entries`.`task_type` AS `task_type`,`entries`.`label` AS `status`,`entries`.`measure` AS `measure`,`entries`.`bucket` AS `bucket`,case when `entries`.`measure` in ('wait','run') then round(pow(2,(`entries`.`bucket` + 0.5) / 4.0) / 1000.0,3) end AS `milliseconds`,sum(`entries`.`n`) AS `tasks` from (select `task_counts`.`span_start` AS `span_start`,`task_counts`.`queue` AS `queue`,`task_counts`.`task_type` AS `task_type`,`task_counts`.`measure` AS `measure`,`task_counts`.`label` AS `label`,`task_counts`.`bucket` AS `bucket`,`task_counts`.`n` AS `n` from `task_counts` where `task_counts`.`span_start` > 0 union all select `count_deltas`.`span_start` AS `span_start`,`count_deltas`.`queue` AS `queue`,`count_deltas`.`task_type` AS `task_type`,`count_deltas`.`measure` AS `measure`,`count_deltas`.`label` AS `label`,`count_deltas`.`bucket` AS `bucket`,`count_deltas`.`n` AS `n` from `count_deltas` where `count_deltas`.`span_start` > 0) `entries` group by `entries`.`span_start`,`entries`.`queue`,`entries`.`task_type`,`entries`.`measure`,`entries`.`label`,`entries`.`bucket` having sum(`entries`.`n`) <> 0;

CREATE ALGORITHM=UNDEFINED SQL SECURITY DEFINER VIEW `v_tasks` AS select lcase(insert(insert(insert(insert(hex(`tasks`.`id`),21,0,'-'),17,0,'-'),13,0,'-'),9,0,'-')) AS `task_id`,lcase(insert(insert(insert(insert(hex(`tasks`.`parent_id`),21,0,'-'),17,0,'-'),13,0,'-'),9,0,'-')) AS `parent_task_id`,convert(`tasks`.`owner` using utf8mb4) AS `owner`,`tasks`.`tier` AS `tier`,`tasks`.`task_type` AS `task_type`,convert(`tasks`.`task_key` using utf8mb4) AS `task_key`,`tasks`.`queue` AS `queue`,`tasks`.`priority` AS `priority`,`tasks`.`status` AS `status`,`tasks`.`phase` AS `phase`,`tasks`.`attempt` AS `attempt`,`tasks`.`max_attempts` AS `max_attempts`,`tasks`.`retry_count` AS `retry_count`,`tasks`.`snooze_count` AS `snooze_count`,`tasks`.`crash_count` AS `crash_count`,`tasks`.`version` AS `version`,TIMESTAMP'1970-01-01 00:00:00' + interval `tasks`.`created_at` microsecond AS `created_at`,TIMESTAMP'1970-01-01 00:00:00' + interval `tasks`.`updated_at` microsecond AS `updated_at`,TIMESTAMP'1970-01-01 00:00:00' + interval `tasks`.`due_at` microsecond AS `due_at`,TIMESTAMP'1970-01-01 00:00:00' + interval `tasks`.`started_at` microsecond AS `started_at`,TIMESTAMP'1970-01-01 00:00:00' + interval `tasks`.`last_attempt_at` microsecond AS `last_attempt_at`,TIMESTAMP'1970-01-01 00:00:00' + interval `tasks`.`finished_at` microsecond AS `finished_at`,TIMESTAMP'1970-01-01 00:00:00' + interval `tasks`.`deadline_at` microsecond AS `deadline_at`,`tasks`.`timeout_ms` AS `timeout_ms`,lcase(insert(insert(insert(insert(hex(`tasks`.`node_id`),21,0,'-'),17,0,'-'),13,0,'-'),9,0,'-')) AS `node_id`,`tasks`.`host` AS `host`,`tasks`.`children_total` AS `children_total`,`tasks`.`children_completed` AS `children_completed`,`tasks`.`children_with_errors` AS `children_with_errors`,`tasks`.`children_failed` AS `children_failed`,`tasks`.`children_cancelled` AS `children_cancelled`,`tasks`.`parameters` AS `parameters`,`tasks`.`checkpoint` AS `checkpoint`,`tasks`.`progress` AS `progress`,`tasks`.`result` AS `result`,`tasks`.`result_url` AS `result_url`,`tasks`.`error` AS `error`,`tasks`.`memo` AS `memo`,`tasks`.`correlation_id` AS `correlation_id` from `tasks`;
