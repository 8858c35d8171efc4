#!/usr/bin/env bash
# Megatron-LM arguments for the job job.
# Written for Megatron Core 0.19 (checked with core_v0.19.0) by lynxctl export; plan 0123456789ab: tp2 pp1 dp1, micro-batch 2 x 8, predicted step 1.00 s.
# Source this file, then: torchrun <nodes and ranks, 2 in all> pretrain_gpt.py "${MEGATRON_ARGS[@]}"

export CUDA_DEVICE_MAX_CONNECTIONS=1

MEGATRON_ARGS=(
  # model
  --num-layers 4
  --hidden-size 64
  --ffn-hidden-size 256
  --num-attention-heads 8
  --group-query-attention
  --num-query-groups 4
  --seq-length 32
  --max-position-embeddings 32
  --position-embedding-type rope
  --normalization RMSNorm
  --norm-epsilon 1e-05
  --swiglu
  --disable-bias-linear
  --rotary-base 10000
  --attention-dropout 0
  --hidden-dropout 0
  --attention-backend flash
  --bf16

  # parallelism
  --tensor-model-parallel-size 2
  --pipeline-model-parallel-size 1

  # training
  --micro-batch-size 2
  --global-batch-size 16
  --train-iters 1000
  --optimizer adam
  --lr 0.0003
  --min-lr 3e-05
  --lr-decay-style cosine
  --lr-warmup-iters 20
  --adam-beta1 0.9
  --adam-beta2 0.95
  --adam-eps 1e-08
  --weight-decay 0.1
  --clip-grad 1
  --seed 1234

  # data
  --tokenizer-type NullTokenizer
  --vocab-size 1000
  --make-vocab-size-divisible-by 1
  --data-path '/data/corpus_text'
  --split 100,0,0
)
