#include "server/loop/effect_list.h"

#include <gtest/gtest.h>

namespace lynx::server {
namespace {

std::string Text(const Effect& effect) {
  if (const auto* worker = std::get_if<SendWorker>(&effect))
    return "worker" + std::to_string(worker->stream) + "." + std::to_string(worker->desired.acks.size());
  if (const auto* agent = std::get_if<SendAgent>(&effect)) return "agent" + std::to_string(agent->stream);
  if (const auto* update = std::get_if<UpdateJob>(&effect))
    return "job" + update->job.id.value + "." + std::to_string(update->job.restarts);
  if (const auto* notice = std::get_if<NotifyWatchers>(&effect))
    return "notice" + notice->job.value + "." + std::to_string(notice->events.size());
  if (const auto* reply = std::get_if<Reply>(&effect)) return "reply" + std::to_string(reply->request);
  return "?";
}

std::string Text(const std::vector<Effect>& effects) {
  std::string text;
  for (const Effect& effect : effects) text += (text.empty() ? "" : " ") + Text(effect);
  return text;
}

SendWorker Worker(int64_t stream, size_t acks) { return {stream, {.ranks = {}, .acks = std::vector<ReportAck>(acks)}}; }
UpdateJob Update(const std::string& job, int32_t restarts) {
  UpdateJob update;
  update.job.id = JobId(job);
  update.job.restarts = restarts;
  return update;
}
NotifyWatchers Notice(const std::string& job, size_t events) { return {JobId(job), std::vector<JobEvent>(events)}; }

TEST(EffectList, ANewerStateTakesThePlaceOfTheOlderAtItsOwn) {
  EffectList list;
  list.Append(Worker(1, 1));
  list.Append(Update("a", 1));
  list.Append(SendAgent{1, {}});
  list.Append(Update("b", 1));
  list.Append(Worker(2, 1));
  list.Append(Update("a", 2));
  list.Append(Worker(1, 3));
  EXPECT_EQ(Text(list.Get()), "agent1 jobb.1 worker2.1 joba.2 worker1.3");
  list.Append(Update("b", 5));
  list.Append(Update("b", 6));
  EXPECT_EQ(Text(list.Get()), "agent1 worker2.1 joba.2 worker1.3 jobb.6");
}

TEST(EffectList, RepliesAreAllKept) {
  EffectList list;
  for (const int64_t request : {1, 2, 1}) list.Append(Reply{.request = request});
  EXPECT_EQ(Text(list.Get()), "reply1 reply2 reply1");
}

TEST(EffectList, NoticesOfOneJobAreOneAtTheFirstPlace) {
  EffectList list;
  list.Append(Update("x", 1));
  list.Append(Notice("a", 1));
  list.Append(Update("x", 2));  // replaces the first effect, and comes after the notice
  EXPECT_EQ(Text(list.Get()), "noticea.1 jobx.2");
  list.Append(Notice("b", 1));
  list.Append(Notice("a", 2));
  EXPECT_EQ(Text(list.Get()), "noticea.3 jobx.2 noticeb.1");
}

TEST(EffectList, WhatIsErasedTakesNoPlace) {
  EffectList list;
  list.Append(Update("a", 1));
  list.Append(Worker(1, 1));
  list.Append(Update("b", 1));
  list.EraseIf([](const Effect& effect) { return Text(effect) == "joba.1"; });
  EXPECT_EQ(Text(list.Get()), "worker1.1 jobb.1");
  list.Append(Update("a", 7));
  list.Append(Worker(1, 2));
  EXPECT_FALSE(list.empty());
  EXPECT_EQ(Text(list.Take()), "jobb.1 joba.7 worker1.2");
  EXPECT_TRUE(list.empty());
  list.Append(Update("a", 8));
  list.clear();
  EXPECT_TRUE(list.empty());
  EXPECT_EQ(Text(list.Take()), "");
}

}  // namespace
}  // namespace lynx::server
